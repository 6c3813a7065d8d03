"""Errors: every code has an HTTP meaning, and the envelope is OpenAI's."""

import re

import msgspec
import pytest

from frontend.errors import HTTP_MEANINGS, AnyErrorCode, HttpErrorCode, PromptTooLongError, RequestError, error_body
from protocol.errors import ErrorCode

ALL_CODES: list[AnyErrorCode] = [*ErrorCode, *HttpErrorCode]


def test_every_code_has_a_meaning() -> None:
    """The table is total: a new code without a row fails here, not at a client."""
    assert set(HTTP_MEANINGS) == set(ALL_CODES)


def test_wire_and_http_codes_never_share_a_word() -> None:
    """A client tells them apart by the word alone."""
    assert {code.value for code in ErrorCode} & {code.value for code in HttpErrorCode} == set()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.INVALID_REQUEST, 400),
        (ErrorCode.UNSUPPORTED, 400),
        (ErrorCode.CONTEXT_LENGTH_EXCEEDED, 400),
        (HttpErrorCode.INVALID_API_KEY, 401),
        (ErrorCode.MODEL_NOT_FOUND, 404),
        (ErrorCode.DEADLINE_EXCEEDED, 408),
        (HttpErrorCode.BODY_TOO_LARGE, 413),
        (ErrorCode.QUEUE_FULL, 429),
        (ErrorCode.INTERNAL, 500),
        (ErrorCode.NOT_READY, 503),
        (ErrorCode.SHUTTING_DOWN, 503),
    ],
)
def test_status_is_openais(code: AnyErrorCode, status: int) -> None:
    """The statuses that clients branch on."""
    assert RequestError(code, "x").status == status


@pytest.mark.parametrize("code", ALL_CODES)
def test_a_wait_is_named_where_waiting_helps(code: AnyErrorCode) -> None:
    """429 and 503 always carry a Retry-After, and nothing else does."""
    error = RequestError(code, "x")
    assert (error.retry_after_s is not None) == (error.status in (429, 503))


def test_the_engines_own_wait_wins() -> None:
    """A time the engine has worked out is told instead of the table's."""
    assert RequestError(ErrorCode.QUEUE_FULL, "x", retry_after_s=7.5).retry_after_s == 7.5


def test_envelope_is_openais() -> None:
    """One object `error` with message, type, param and code, in this order."""
    error = RequestError(ErrorCode.MODEL_NOT_FOUND, "no such model", param="model")
    assert msgspec.json.encode(error_body(error)) == (
        b'{"error":{"message":"no such model","type":"invalid_request_error","param":"model","code":"model_not_found"}}'
    )


def test_envelope_without_a_field_says_null() -> None:
    """param is there, and null, when no field is at fault."""
    assert error_body(RequestError(ErrorCode.INTERNAL, "x")).error.param is None


def test_a_prompt_that_memory_cannot_hold_says_so() -> None:
    """E2: beside the words that agents look for, why it is so and what to change."""
    message = PromptTooLongError(9_000, 8_192, "messages", "the model has 32768, but: raise the flag").message
    assert "maximum context length is 8192 tokens" in message
    assert message.endswith("no room is left for a reply; the model has 32768, but: raise the flag")


@pytest.mark.parametrize("is_least", [False, True])
def test_agents_see_that_a_prompt_is_too_long(is_least: bool) -> None:
    """By its words: what OpenCode, pi, Continue and Qwen Code look for before they make a conversation shorter."""
    message = PromptTooLongError(9_000, 8_192, "messages", is_least=is_least).message
    assert re.search(r"maximum context length is 8192 tokens", message)
    # Qwen Code also reads how long it was.
    assert is_least or re.search(r"(?:resulted in|requested|used) 9000 tokens", message)
