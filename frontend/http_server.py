"""aiohttp's server, but for what a client gets that does not speak HTTP: the same envelope as any other error.

Owns what happens before there is a request; everything after is the application's.
"""

import logging
import secrets
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

from frontend.errors import RequestError, error_body
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

_LONGEST_REASON: Final = 300


class _Connection(web.RequestHandler):
    """One client's connection. aiohttp calls handle_error for what it cannot parse, and for nothing else of ours."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The envelope, one line in the log, and the end of the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of a response was sent already")
        id_ = f"req-{secrets.token_hex(12)}"
        if isinstance(exc, HttpProcessingError):
            reason = " ".join((message or str(exc)).split())[:_LONGEST_REASON]
            # Port scanners and TLS handshakes come by all day.
            level = logging.DEBUG if isinstance(exc, BadHttpMethod) else logging.INFO
            log.log(level, "request.malformed", extra={"request_id": id_, "status": status, "reason": reason})
            error = RequestError(ErrorCode.INVALID_REQUEST, f"the request is not valid HTTP: {reason}")
        else:
            log.error("request.failed", extra={"request_id": id_, "status": status}, exc_info=exc)
            error = RequestError(ErrorCode.INTERNAL, f"internal error; request id {id_} is in the log")
        response = web.Response(
            body=msgspec.json.encode(error_body(error)),
            status=status,
            headers={"x-request-id": id_},
            content_type="application/json",
        )
        response.force_close()
        return response


class _Server(web.Server):
    """Makes a connection of ours for each client."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class HttpRunner(web.AppRunner):
    """An AppRunner whose server is ours. Takes the same arguments."""

    async def _make_server(self) -> web.Server:
        plain = await super()._make_server()
        return _Server(plain.request_handler, request_factory=plain.request_factory, **self._kwargs)
