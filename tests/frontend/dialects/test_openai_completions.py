"""Completion bodies: every form of a prompt, and what is refused."""

from typing import Any

import pytest

from frontend.dialects.base import Prompt, TextPrompt, TokensPrompt
from frontend.dialects.openai_completions import COMPLETION_FIELDS, MAX_PROMPTS, parse_completion
from frontend.errors import RequestError
from protocol.errors import ErrorCode


def refused(content: object) -> RequestError:
    """The error that a body is answered with."""
    with pytest.raises(RequestError) as caught:
        parse_completion(content)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Once", (TextPrompt("Once"),)),
        ("", (TextPrompt(""),)),
        (["a", "b"], (TextPrompt("a"), TextPrompt("b"))),
        ([1, 2, 3], (TokensPrompt((1, 2, 3)),)),
        ([[1], [2, 3]], (TokensPrompt((1,)), TokensPrompt((2, 3)))),
    ],
)
def test_every_form_of_a_prompt(prompt: object, prompts: tuple[Prompt, ...]) -> None:
    """One choice for each text or list of ids, in order; an empty text may still get a BOS."""
    assert parse_completion({"prompt": prompt}).prompts == prompts


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        (5, "prompt"),
        ({"a": 1}, "prompt"),
        ([], "prompt"),
        ([True], "prompt[0]"),
        ([None], "prompt[0]"),
        ([1.5], "prompt[0]"),
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([1, True], "prompt[1]"),
        ([-1], "prompt[0]"),
        ([2**32], "prompt[0]"),
        ([[1], "a"], "prompt[1]"),
        ([[1], []], "prompt[1]"),
        ([[1], [1.0]], "prompt[1][0]"),
        (["x"] * (MAX_PROMPTS + 1), "prompt"),
    ],
)
def test_a_wrong_prompt_is_refused_by_its_place(prompt: object, param: str) -> None:
    """Mixed lists too."""
    error = refused({"prompt": prompt})
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, param)


def test_a_missing_prompt_is_refused() -> None:
    """OpenAI's own default would be a token that few models have."""
    assert refused({"model": "m"}).param == "prompt"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "end"),
        ("prompt_logprobs", 0),
        ("add_special_tokens", False),
    ],
)
def test_what_would_change_the_output_is_refused(field: str, value: object) -> None:
    """By name."""
    error = refused({"prompt": "x", field: value})
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, field)


def test_null_is_the_same_as_absent() -> None:
    """For every known field but the prompt."""
    nulls: dict[str, Any] = dict.fromkeys(COMPLETION_FIELDS)
    assert parse_completion({**nulls, "prompt": "x"}) == parse_completion({"prompt": "x"})


def test_chat_fields_are_named_as_ignored() -> None:
    """A field of the other dialect is unknown here."""
    assert parse_completion({"prompt": "x", "messages": []}).ignored == ("messages",)


@pytest.mark.parametrize(
    ("fields", "best_of", "rows"),
    [({}, None, 1), ({"n": 2}, None, 2), ({"best_of": 3}, 3, 3), ({"n": 2, "best_of": 2, "stream": True}, 2, 2)],
)
def test_best_of_is_how_many_rows_run(fields: dict[str, Any], best_of: int | None, rows: int) -> None:
    """Left out: as many as `n`; a stream may say the same number again."""
    generation = parse_completion({"prompt": "x", **fields})
    assert (generation.best_of, generation.rows_per_prompt) == (best_of, rows)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 2, "best_of": 1}, "at least `n`, which is 2"),
        ({"best_of": 0}, "an integer of at least 1"),
        ({"best_of": 2, "stream": True}, "cannot be streamed"),
    ],
)
def test_best_of_is_at_least_n_and_whole(fields: dict[str, Any], said: str) -> None:
    """As OpenAI has it."""
    error = refused({"prompt": "x", **fields})
    assert error.param == "best_of"
    assert said in error.message


def test_an_echo_may_be_all_that_is_wanted() -> None:
    """max_tokens 0 is a number only with echo, also as max_completion_tokens."""
    for name in ("max_tokens", "max_completion_tokens"):
        assert refused({"prompt": "x", name: 0}).param == name
        generation = parse_completion({"prompt": "x", "echo": True, name: 0})
        assert (generation.has_echo, generation.is_echo_only) == (True, True)
    assert not parse_completion({"prompt": "x", "echo": True}).is_echo_only
