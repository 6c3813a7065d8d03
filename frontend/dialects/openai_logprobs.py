"""Log-probabilities in OpenAI's two shapes, and the fields that ask for them in either dialect."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from frontend.dialects.base import AskedLogprobs, TokenChance, TokenEntry
from frontend.dialects.values import Bounds, is_integer, read_bool, read_integer, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MAX_TOP: Final = 20


class ChatTop(msgspec.Struct, frozen=True, kw_only=True):
    """One alternative."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class ChatEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One token. token: its text, with `\\xf0` escapes where it is half a character; bytes: exactly."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[ChatTop, ...]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's chat shape."""

    content: tuple[ChatEntry, ...]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's legacy shape: four lists over the tokens. The first token of an echoed prompt has two nulls."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


def chat_logprobs(entries: Iterable[TokenEntry], asked: AskedLogprobs) -> ChatLogprobs:
    """The entries of a frame or of a whole choice."""
    return ChatLogprobs(content=tuple([_chat_entry(entry, asked) for entry in entries]))


def completion_logprobs(entries: Sequence[TokenEntry], asked: AskedLogprobs) -> CompletionLogprobs:
    """The entries of a frame or of a whole choice. Beside the likeliest tokens, the chosen one is always there."""
    return CompletionLogprobs(
        text_offset=[entry.start for entry in entries],
        token_logprobs=[entry.token.logprob for entry in entries],
        tokens=[_legacy_text(entry.token, asked) for entry in entries],
        top_logprobs=[_legacy_top(entry, asked) for entry in entries],
    )


def read_chat_logprobs(body: Mapping[str, object]) -> AskedLogprobs | None:
    """`logprobs` and `top_logprobs` of a chat. Raises RequestError."""
    is_wanted = read_bool(body, "logprobs", default=False)
    top, has_ids = _top(body), has_token_ids(body)
    if not is_wanted and top:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`top_logprobs` {top} needs `logprobs` to be true", "top_logprobs"
        )
    return AskedLogprobs(top, has_ids) if is_wanted else None


def read_completion_logprobs(body: Mapping[str, object]) -> AskedLogprobs | None:
    """OpenAI's number of alternatives; or mlx_lm.server's `true`, with `top_logprobs`. Raises RequestError."""
    value = body.get("logprobs")
    if isinstance(value, bool) or value is None:
        return read_chat_logprobs(body)
    if not is_integer(value):
        raise wrong("logprobs", value, f"an integer from 0 to {MAX_TOP}, true or false")
    if _top(body):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "`top_logprobs` is only read when `logprobs` is true; here `logprobs` is their number",
            "top_logprobs",
        )
    return AskedLogprobs(read_integer(body, "logprobs", Bounds(0, MAX_TOP)) or 0, has_token_ids(body))


def _top(body: Mapping[str, object]) -> int:
    """-1 is mlx_lm.server's word for none."""
    return max(read_integer(body, "top_logprobs", Bounds(0, MAX_TOP, off=-1)) or 0, 0)


def has_token_ids(body: Mapping[str, object]) -> bool:
    """Whether tokens are to be told as their ids. Raises RequestError."""
    return read_bool(body, "return_tokens_as_token_ids", default=False)


def _chat_entry(entry: TokenEntry, asked: AskedLogprobs) -> ChatEntry:
    token = entry.token
    return ChatEntry(
        token=_chat_text(token, asked),
        logprob=_told(token),
        bytes=tuple(token.data),
        top_logprobs=tuple(
            [
                ChatTop(token=_chat_text(other, asked), logprob=_told(other), bytes=tuple(other.data))
                for other in entry.alternatives
            ]
        ),
    )


def _told(token: TokenChance) -> float:
    assert token.logprob is not None, "only an echoed prompt has a token without one, and a chat has no echo"
    return token.logprob


def _legacy_top(entry: TokenEntry, asked: AskedLogprobs) -> dict[str, float] | None:
    chosen = entry.token
    if chosen.logprob is None:
        return None
    top: dict[str, float] = {}
    # Two ids may be spelled alike: the likelier one is told.
    for token in (*entry.alternatives, chosen):
        top.setdefault(_legacy_text(token, asked), _told(token))
    return top


def _chat_text(token: TokenChance, asked: AskedLogprobs) -> str:
    if asked.has_ids:
        return f"token_id:{token.id}"
    return token.data.decode("utf-8", "backslashreplace")


def _legacy_text(token: TokenChance, asked: AskedLogprobs) -> str:
    """As in a chat, with OpenAI's mark on what is no text by itself."""
    text = _chat_text(token, asked)
    return text if asked.has_ids or token.data == text.encode() else "bytes:" + text
