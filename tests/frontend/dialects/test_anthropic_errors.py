"""Errors in Anthropic's words: type by status, the field first, the request's id."""

import msgspec
import pytest

from frontend.dialects.anthropic_errors import message_error_body
from frontend.errors import AnyErrorCode, HttpErrorCode, PromptTooLongError, RequestError
from protocol.errors import ErrorCode


def told(error: RequestError) -> str:
    """The message of an error."""
    return message_error_body(error, "req-1").error.message


def test_the_envelope_is_anthropics() -> None:
    """Type, error and the request's id, in this order; our own code is among the details."""
    error = RequestError(ErrorCode.MODEL_NOT_FOUND, "the model `x` does not exist", "model")
    assert msgspec.json.encode(message_error_body(error, "req-1")) == (
        b'{"type":"error","error":{"type":"not_found_error","message":"model: the model `x` does not exist",'
        b'"details":{"error_code":"model_not_found"}},"request_id":"req-1"}'
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_REQUEST, "invalid_request_error"),
        (ErrorCode.UNSUPPORTED, "invalid_request_error"),
        (HttpErrorCode.INVALID_API_KEY, "authentication_error"),
        (ErrorCode.MODEL_NOT_FOUND, "not_found_error"),
        (HttpErrorCode.NOT_FOUND, "not_found_error"),
        (HttpErrorCode.METHOD_NOT_ALLOWED, "invalid_request_error"),
        (ErrorCode.DEADLINE_EXCEEDED, "timeout_error"),
        (HttpErrorCode.BODY_TOO_LARGE, "request_too_large"),
        (ErrorCode.QUEUE_FULL, "rate_limit_error"),
        (ErrorCode.INTERNAL, "api_error"),
        (ErrorCode.NOT_READY, "overloaded_error"),
    ],
)
def test_each_status_has_its_type(code: AnyErrorCode, kind: str) -> None:
    """The words that clients branch on."""
    assert message_error_body(RequestError(code, "x"), "r").error.type == kind


@pytest.mark.parametrize(
    ("message", "param", "expected"),
    [
        ("the engine failed", None, "the engine failed"),
        ("`max_tokens` must be an integer, not 1.5", "max_tokens", "max_tokens: must be an integer, not 1.5"),
        ("`n` with the value 2 is not supported", "n", "n: the value 2 is not supported"),
        ("`output_format`: no such keyword", "output_format", "output_format: no such keyword"),
        ("the prompt is empty", "messages", "messages: the prompt is empty"),
        ("`stop[1]` must be a string, not 1", "stop[1]", "stop.1: must be a string, not 1"),
    ],
)
def test_the_field_comes_first(message: str, param: str | None, expected: str) -> None:
    """As in `messages.0.content.1: …`, once."""
    assert told(RequestError(ErrorCode.INVALID_REQUEST, message, param)) == expected


def test_a_long_prompt_is_told_in_the_sentence_that_agents_wait_for() -> None:
    """They make their conversation shorter then; a prompt that just fills the context is too long, too."""
    assert told(PromptTooLongError(600, 512, "messages")) == "prompt is too long: 600 tokens > 512 maximum"
    assert told(PromptTooLongError(512, 512, "messages")) == "prompt is too long: 512 tokens > 511 maximum"
    limited = PromptTooLongError(600, 512, "messages", "memory holds 512")
    assert told(limited) == "prompt is too long: 600 tokens > 512 maximum (memory holds 512)"


def test_a_thread_is_refused_in_the_words_that_tool_runners_wait_for() -> None:
    """They go on without one then; another field that is not supported keeps our own code."""
    thread = message_error_body(RequestError(ErrorCode.UNSUPPORTED, "`thread` is not supported", "thread"), "r")
    other = message_error_body(RequestError(ErrorCode.UNSUPPORTED, "`container` is not supported", "container"), "r")
    refused = b'{"error_code":"thread_unsupported_request","unsupported":["thread"]}'
    assert msgspec.json.encode(thread.error.details) == refused
    assert msgspec.json.encode(other.error.details) == b'{"error_code":"unsupported"}'
