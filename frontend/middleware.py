"""What surrounds every handler: request ids, errors in a dialect's words, one log line; the one broad except of HTTP.

Owns how a failure is told, before the status line and after it; knows no route.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from aiohttp import web

from frontend.dialects.anthropic_errors import ANTHROPIC_ENVELOPE
from frontend.errors import OPENAI_ENVELOPE, AnyErrorCode, Envelope, HttpErrorCode, RequestError
from frontend.metrics import HttpKey, Metrics
from frontend.request_log import RECORD, STATUS_CLIENT_GONE, RequestRecord, log_done, request_id
from frontend.route_hints import route_hint
from frontend.sse import ClientGoneError, frame
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

_PROBES: Final = frozenset({"/livez", "/readyz", "/health", "/stats", "/metrics"})
_CODES: Final[Mapping[int, AnyErrorCode]] = {
    404: HttpErrorCode.NOT_FOUND,
    405: HttpErrorCode.METHOD_NOT_ALLOWED,
    408: ErrorCode.DEADLINE_EXCEEDED,
    413: HttpErrorCode.BODY_TOO_LARGE,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every failure, and logs every request once."""
    request[RECORD] = RequestRecord(request_id(request.headers.get("x-request-id")))
    status = STATUS_CLIENT_GONE
    try:
        response = await _answered(request, handler)
        status = response.status
    except ClientGoneError as error:
        log.info("client.gone", extra={"request_id": request[RECORD].id, "reason": str(error)})
        sse = request[RECORD].sse
        return web.Response(status=STATUS_CLIENT_GONE) if sse is None else sse.response
    else:
        return response
    finally:
        log_done(request, status, logging.DEBUG if request.path in _PROBES else logging.INFO)
        _count(request, status)


def _count(request: web.Request, status: int) -> None:
    resource = request.match_info.route.resource
    record = request[RECORD]
    request.app[METRICS].request_done(
        HttpKey("unknown" if resource is None else resource.canonical, status),
        record.started_s,
        record.first_token_s if record.error_code is None else None,
        time.monotonic(),
    )


async def add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Tells every response's request id; streams send their headers before the middleware sees them."""
    if RECORD in request:
        response.headers["x-request-id"] = request[RECORD].id
        id_header = envelope_of(request).id_header
        if id_header is not None:
            response.headers[id_header] = request[RECORD].id


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return await _told(request, error)
    except web.HTTPException as error:
        return await _as_envelope(request, error)
    except (ClientGoneError, asyncio.CancelledError):
        raise
    except Exception:  # the HTTP middleware is one of the three places that may
        log.exception("request.failed", extra={"request_id": request[RECORD].id})
        message = f"internal error; request id {request[RECORD].id} is in the log"
        return await _told(request, RequestError(ErrorCode.INTERNAL, message))


async def _told(request: web.Request, error: RequestError) -> web.StreamResponse:
    record = request[RECORD]
    record.error_code = error.code.value
    if record.sse is not None and record.sse.is_open:
        await record.sse.fail(await _last_words(request, error))
        return record.sse.response
    headers = {} if error.retry_after_s is None else {"retry-after": str(math.ceil(error.retry_after_s))}
    if error.code == HttpErrorCode.INVALID_API_KEY:
        headers["www-authenticate"] = "Bearer"
    return _envelope(request, error, error.status, headers)


async def _last_words(request: web.Request, error: RequestError) -> list[bytes]:
    """The last frames of a stream that has begun."""
    record = request[RECORD]
    own = [] if record.framer is None else record.framer.failed(error)
    if own:
        *others, last = own
        return [frame(made.content, made.name) for made in (*others, await record.kept(last))]
    envelope = envelope_of(request)
    return [frame(envelope.body(error, record.id), envelope.event)]


async def _as_envelope(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    if error.status < 400:
        raise error
    code = _CODES.get(error.status, ErrorCode.INVALID_REQUEST)
    headers = {name: value for name, value in error.headers.items() if name.lower() == "allow"}
    match error:
        case web.HTTPNotFound():
            message = f"unknown route: {request.method} {request.path}; {await route_hint(request)}"
        case web.HTTPMethodNotAllowed():
            message = f"{request.method} is not allowed on {request.path}; use {headers.get('Allow', 'another')}"
        case web.HTTPRequestEntityTooLarge():
            message = f"the request body is over the limit of {request.app[MAX_BODY_BYTES]} bytes"
        case _:
            message = error.reason
    request[RECORD].error_code = code.value
    return _envelope(request, RequestError(code, message), error.status, headers)


def envelope_of(request: web.Request) -> Envelope:
    """The envelope of the route's dialect; elsewhere that of the client's, which a header of Anthropic's tells."""
    fallback = ANTHROPIC_ENVELOPE if "anthropic-version" in request.headers else OPENAI_ENVELOPE
    return request.app[ENVELOPES].get(request.path, fallback)


def _envelope(request: web.Request, error: RequestError, status: int, headers: Mapping[str, str]) -> web.Response:
    body = msgspec.json.encode(envelope_of(request).body(error, request[RECORD].id))
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


# By path; only those that are not OpenAI's.
ENVELOPES: Final = web.AppKey("envelopes", dict[str, Envelope])
METRICS: Final = web.AppKey("metrics", Metrics)
MAX_BODY_BYTES: Final = web.AppKey("max_body_bytes", int)
