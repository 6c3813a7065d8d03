"""Which log-probabilities are asked for, and OpenAI's two shapes of them."""

from typing import Any

import msgspec
import pytest

from frontend.dialects.base import AskedLogprobs, TokenChance, TokenEntry
from frontend.dialects.openai_chat import parse_chat
from frontend.dialects.openai_completions import parse_completion
from frontend.dialects.openai_logprobs import chat_logprobs, completion_logprobs
from frontend.errors import RequestError


def chat(**fields: Any) -> AskedLogprobs | None:
    """What a chat body asks for."""
    return parse_chat({"messages": [{"role": "user", "content": "Hi"}], **fields}).logprobs


def completion(**fields: Any) -> AskedLogprobs | None:
    """What a completion body asks for."""
    return parse_completion({"prompt": "Hi", **fields}).logprobs


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": None, "top_logprobs": -1}, None),
        ({"logprobs": True}, AskedLogprobs(0)),
        ({"logprobs": True, "top_logprobs": -1}, AskedLogprobs(0)),
        ({"logprobs": True, "top_logprobs": 20}, AskedLogprobs(20)),
        ({"logprobs": True, "return_tokens_as_token_ids": True}, AskedLogprobs(0, has_ids=True)),
    ],
)
def test_asked_with_true(fields: dict[str, Any], expected: AskedLogprobs | None) -> None:
    """OpenAI's chat form; mlx_lm.server's completions have the same."""
    assert chat(**fields) == expected
    assert completion(**fields) == expected


@pytest.mark.parametrize("count", [0, 1, 20])
def test_asked_with_a_number(count: int) -> None:
    """OpenAI's completions: 0 still asks for the chosen token's."""
    assert completion(logprobs=count) == AskedLogprobs(count)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"logprobs": 1.0}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"return_tokens_as_token_ids": 1, "logprobs": True}, "return_tokens_as_token_ids"),
    ],
)
def test_a_wrong_wish_is_refused(fields: dict[str, Any], param: str) -> None:
    """By name, in both dialects."""
    for parse in (chat, completion):
        with pytest.raises(RequestError) as caught:
            parse(**fields)
        assert (caught.value.status, caught.value.param) == (400, param)


def test_a_number_is_for_completions_alone() -> None:
    """A chat takes true or false; a number of alternatives has one place."""
    for parse, fields, param in (
        (chat, {"logprobs": 1}, "logprobs"),
        (completion, {"logprobs": 1, "top_logprobs": 2}, "top_logprobs"),
    ):
        with pytest.raises(RequestError) as caught:
            parse(**fields)
        assert caught.value.param == param


HALF = TokenEntry(TokenChance(7, b"\xf0\x9f", -1.0), (TokenChance(8, b"a", -0.5), TokenChance(9, b"a", -0.75)), 4)


def test_chat_shape() -> None:
    """Bytes are exact, half characters escaped; alternatives are what the engine told, in its order."""
    assert msgspec.json.decode(msgspec.json.encode(chat_logprobs([HALF], AskedLogprobs(2)))) == {
        "content": [
            {
                "token": "\\xf0\\x9f",
                "logprob": -1.0,
                "bytes": [240, 159],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "a", "logprob": -0.75, "bytes": [97]},
                ],
            }
        ],
        "refusal": None,
    }


def test_completion_shape() -> None:
    """The chosen token is among the alternatives; of two that are spelled alike the likelier is told."""
    first = TokenEntry(TokenChance(1, b"<s>", None), (), 0)
    assert msgspec.to_builtins(completion_logprobs([first, HALF], AskedLogprobs(2))) == {
        "text_offset": [0, 4],
        "token_logprobs": [None, -1.0],
        "tokens": ["<s>", "bytes:\\xf0\\x9f"],
        "top_logprobs": [None, {"a": -0.5, "bytes:\\xf0\\x9f": -1.0}],
    }


def test_tokens_as_ids() -> None:
    """vLLM's spelling, which no two tokens share."""
    asked = AskedLogprobs(2, has_ids=True)
    assert completion_logprobs([HALF], asked).top_logprobs == [
        {"token_id:8": -0.5, "token_id:9": -0.75, "token_id:7": -1.0}
    ]
    assert [entry.token for entry in chat_logprobs([HALF], asked).content] == ["token_id:7"]
