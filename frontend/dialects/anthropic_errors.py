"""How failures are told on Anthropic's routes: its envelope, its types, its way of naming a field.

Owns words only; which status an error has is said by the one table in frontend.errors.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from frontend.errors import Envelope, PromptTooLongError, RequestError
from protocol.errors import ErrorCode

# By HTTP status. Anthropic's own 529 is not used: a full queue is a 429, an engine that is not there a 503.
_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        408: "timeout_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
)
# Other readers of fields spell `stop_sequences[0]`.
_INDEX: Final = re.compile(r"\[(\d+)\]")
_OTHER_REQUEST: Final = "invalid_request_error"
_OTHER_SERVER: Final = "api_error"


class MessageErrorDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """error_code: ours, which is the same in every dialect, but for a thread. unsupported: what of it is."""

    error_code: str
    unsupported: tuple[str, ...] = ()


class MessageErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Anthropic's error object."""

    type: str
    message: str
    details: MessageErrorDetails


class MessageErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Anthropic's envelope: a whole reply, or the data of a stream's `error` event."""

    type: Literal["error"] = "error"
    error: MessageErrorDetail
    request_id: str


def message_error_body(error: RequestError, request_id: str) -> MessageErrorBody:
    """The envelope of one error."""
    other = _OTHER_SERVER if error.status >= 500 else _OTHER_REQUEST
    return MessageErrorBody(
        error=MessageErrorDetail(
            type=_TYPES.get(error.status, other),
            message=_message(error),
            details=_details(error),
        ),
        request_id=request_id,
    )


def _details(error: RequestError) -> MessageErrorDetails:
    """Anthropic's own tool runners ask for a thread first, and send the whole conversation once they are told this."""
    if error.code is ErrorCode.UNSUPPORTED and error.param == "thread":
        return MessageErrorDetails(error_code="thread_unsupported_request", unsupported=("thread",))
    return MessageErrorDetails(error_code=error.code.value)


def _message(error: RequestError) -> str:
    """The field comes first, as `messages.0.content: …`.

    Agents compact their conversation when they read exactly Anthropic's sentence on a long prompt.
    """
    if isinstance(error, PromptTooLongError):
        # A prompt that fills the context to its last token leaves no room for a reply.
        most = min(error.context_tokens, error.prompt_tokens - 1)
        why = "" if error.memory_limit is None else f" ({error.memory_limit})"
        return f"prompt is too long: {error.prompt_tokens} tokens > {most} maximum{why}"
    if error.param is None:
        return error.message
    rest = error.message.removeprefix(f"`{error.param}`").removeprefix(":").removeprefix(" with").lstrip()
    path = _INDEX.sub(r".\1", error.param)
    return f"{path}: {rest}"


ANTHROPIC_ENVELOPE: Final = Envelope(message_error_body, event="error", id_header="request-id")
