"""What a client is told when a request fails: every code's HTTP status and OpenAI error type, in one table.

Owns the envelopes; the middleware that sends it lives in app, and no handler writes a status of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.errors import ErrorCode


class HttpErrorCode(StrEnum):
    """Failures that only HTTP knows; the wire's own are in protocol.errors."""

    BODY_TOO_LARGE = "body_too_large"
    INVALID_API_KEY = "invalid_api_key"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    HOST_NOT_ALLOWED = "host_not_allowed"
    ORIGIN_NOT_ALLOWED = "origin_not_allowed"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    REQUEST_QUARANTINED = "request_quarantined"
    PREVIOUS_RESPONSE_NOT_FOUND = "previous_response_not_found"
    RESPONSE_STORE_UNAVAILABLE = "response_store_unavailable"


AnyErrorCode = ErrorCode | HttpErrorCode


@dataclass(frozen=True, slots=True)
class HttpMeaning:
    """status: HTTP. type: OpenAI's word. retry_after_s: told when the error itself names no time; None for never."""

    status: int
    type: str
    retry_after_s: float | None = None


_REQUEST = "invalid_request_error"
_SERVER = "server_error"

# An OpenAI client retries 408, 409, 429 and 5xx by itself: what can never work must be another 4xx.
HTTP_MEANINGS: Final[Mapping[AnyErrorCode, HttpMeaning]] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: HttpMeaning(400, _REQUEST),
        ErrorCode.UNSUPPORTED: HttpMeaning(400, _REQUEST),
        ErrorCode.CONTEXT_LENGTH_EXCEEDED: HttpMeaning(400, _REQUEST),
        ErrorCode.OUT_OF_MEMORY: HttpMeaning(400, _REQUEST),
        HttpErrorCode.PREVIOUS_RESPONSE_NOT_FOUND: HttpMeaning(400, _REQUEST),
        HttpErrorCode.INVALID_API_KEY: HttpMeaning(401, _REQUEST),
        HttpErrorCode.HOST_NOT_ALLOWED: HttpMeaning(403, _REQUEST),
        HttpErrorCode.ORIGIN_NOT_ALLOWED: HttpMeaning(403, _REQUEST),
        ErrorCode.MODEL_NOT_FOUND: HttpMeaning(404, _REQUEST),
        HttpErrorCode.NOT_FOUND: HttpMeaning(404, _REQUEST),
        HttpErrorCode.METHOD_NOT_ALLOWED: HttpMeaning(405, _REQUEST),
        ErrorCode.DEADLINE_EXCEEDED: HttpMeaning(408, "timeout_error"),
        HttpErrorCode.BODY_TOO_LARGE: HttpMeaning(413, _REQUEST),
        HttpErrorCode.UNSUPPORTED_MEDIA_TYPE: HttpMeaning(415, _REQUEST),
        ErrorCode.QUEUE_FULL: HttpMeaning(429, "rate_limit_error", retry_after_s=1.0),
        ErrorCode.PREFILL_FAILED: HttpMeaning(500, _SERVER),
        ErrorCode.DECODE_FAILED: HttpMeaning(500, _SERVER),
        ErrorCode.MALFORMED_FRAME: HttpMeaning(500, _SERVER),
        ErrorCode.VERSION_MISMATCH: HttpMeaning(500, _SERVER),
        ErrorCode.DUPLICATE_ID: HttpMeaning(500, _SERVER),
        ErrorCode.INTERNAL: HttpMeaning(500, _SERVER),
        ErrorCode.BAD_SETTING: HttpMeaning(500, _SERVER),
        ErrorCode.BAD_MODEL: HttpMeaning(500, _SERVER),
        ErrorCode.RUNTIME_FOLDER: HttpMeaning(500, _SERVER),
        HttpErrorCode.REQUEST_QUARANTINED: HttpMeaning(500, _SERVER),
        HttpErrorCode.RESPONSE_STORE_UNAVAILABLE: HttpMeaning(503, _SERVER, retry_after_s=1.0),
        ErrorCode.LEASE_LOST: HttpMeaning(503, _SERVER, retry_after_s=1.0),
        ErrorCode.NOT_READY: HttpMeaning(503, _SERVER, retry_after_s=2.0),
        ErrorCode.SHUTTING_DOWN: HttpMeaning(503, _SERVER, retry_after_s=5.0),
    }
)


class RequestError(Exception):
    """A request that is answered with an error. param: the field at fault, as the client spells it."""

    def __init__(
        self,
        code: AnyErrorCode,
        message: str,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = HTTP_MEANINGS[code].retry_after_s if retry_after_s is None else retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return HTTP_MEANINGS[self.code].status


class PromptTooLongError(RequestError):
    """A prompt that leaves no room for a reply. prompt_tokens: at least so many, is_least; else exactly.

    memory_limit: as of ModelFacts.
    """

    def __init__(
        self,
        prompt_tokens: int,
        context_tokens: int,
        param: str,
        memory_limit: str | None = None,
        *,
        is_least: bool = False,
    ) -> None:
        counted = f"at least {prompt_tokens}" if is_least else f"{prompt_tokens}"
        # Agents that see no code make their conversation shorter by the words `maximum context length is … tokens`.
        super().__init__(
            ErrorCode.CONTEXT_LENGTH_EXCEEDED,
            f"this model's maximum context length is {context_tokens} tokens, and the prompt used {counted} tokens: "
            f"no room is left for a reply; {memory_limit or 'shorten the prompt'}",
            param,
        )
        self.memory_limit = memory_limit
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object; the field order is the order on the wire."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's envelope: a whole reply, or one frame of a stream that has already begun."""

    error: ErrorDetail


def error_body(error: RequestError) -> ErrorBody:
    """The envelope of one error."""
    return ErrorBody(
        error=ErrorDetail(
            message=error.message,
            type=HTTP_MEANINGS[error.code].type,
            param=error.param,
            code=error.code.value,
        )
    )


def _openai_envelope(error: RequestError, request_id: str) -> msgspec.Struct:
    del request_id  # in the headers only
    return error_body(error)


@dataclass(frozen=True, slots=True)
class Envelope:
    """How a dialect tells an error. body: of the error and the request's id. event: its name in a stream, if any.

    id_header: where the dialect's clients look for the request's id, beside x-request-id.
    """

    body: Callable[[RequestError, str], msgspec.Struct] = _openai_envelope
    event: str | None = None
    id_header: str | None = None


OPENAI_ENVELOPE: Final = Envelope()
