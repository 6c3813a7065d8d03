"""Sampling fields: every name and range of OpenAI, vLLM and mlx_lm.server, in both dialects alike."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from frontend.dialects.base import AskedSampling, Generation
from frontend.dialects.fields import Honoured
from frontend.dialects.openai_chat import CHAT_FIELDS, parse_chat
from frontend.dialects.openai_completions import parse_completion
from frontend.dialects.openai_sampling import MAX_BAD_WORDS, MAX_BIASES
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.sampling import TokenBias
from tests.structure.sources import ROOT

Parse = Callable[[dict[str, Any]], Generation]


def chat(fields: dict[str, Any]) -> Generation:
    """A chat body with these fields."""
    return parse_chat({"messages": [{"role": "user", "content": "Hi"}], **fields})


def completion(fields: dict[str, Any]) -> Generation:
    """A completion body with these fields."""
    return parse_completion({"prompt": "Hi", **fields})


BOTH = pytest.mark.parametrize("parse", [chat, completion])


@BOTH
def test_every_field_arrives(parse: Parse) -> None:
    """Each in its place; words once, in their order."""
    fields = {
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "repetition_penalty": 1.1,
        "repetition_context_size": 30,
        "presence_penalty": -2,
        "presence_context_size": 0,
        "frequency_penalty": 2,
        "frequency_context_size": 5,
        "logit_bias": {"50": -100, "7": 1.5},
        "bad_words": ["one", " two", "one"],
        "allowed_token_ids": [3, 1],
    }
    generation = parse({**fields, "n": 3})
    assert generation.sampling == AskedSampling(
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        xtc_probability=0.5,
        xtc_threshold=0.2,
        repetition_penalty=1.1,
        repetition_context=30,
        presence_penalty=-2.0,
        presence_context=0,
        frequency_penalty=2.0,
        frequency_context=5,
        logit_bias=(TokenBias(id=50, bias=-100.0), TokenBias(id=7, bias=1.5)),
        bad_words=("one", " two"),
        allowed_ids=(3, 1),
    )
    assert (generation.choices, generation.ignored) == (3, ())


@BOTH
def test_nothing_said_is_nothing_asked(parse: Parse) -> None:
    """Null too: then the server's defaults count, where it has any."""
    asked = AskedSampling()
    assert parse({}).sampling == asked
    assert (
        parse(dict.fromkeys(["temperature", "top_p", "presence_penalty", "logit_bias", "bad_words"])).sampling == asked
    )
    assert (asked.temperature, asked.top_k, asked.top_p, asked.min_p, asked.repetition_penalty) == (None,) * 5


@pytest.mark.parametrize(
    ("field", "value", "attribute", "expected"),
    [
        ("top_k", -1, "top_k", 0),
        ("top_k", 0, "top_k", 0),
        ("top_p", 1, "top_p", 1.0),
        ("repetition_penalty", 0, "repetition_penalty", 1.0),
        ("temperature", 0, "temperature", 0.0),
        ("min_p", 0, "min_p", 0.0),
        ("xtc_threshold", 0, "xtc_threshold", 0.0),
        ("logit_bias", {}, "logit_bias", ()),
        ("bad_words", [], "bad_words", ()),
        ("allowed_token_ids", [], "allowed_ids", ()),
    ],
)
def test_off_is_said_in_every_dialects_word(field: str, value: object, attribute: str, expected: object) -> None:
    """An off that was said overrules a default; it is not the same as nothing."""
    assert getattr(chat({field: value}).sampling, attribute) == expected


@BOTH
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", -0.1),
        ("top_p", "0.9"),
        ("min_p", 1.1),
        ("min_p", -1),
        ("xtc_probability", 2),
        ("xtc_threshold", 0.51),
        ("repetition_penalty", -1),
        ("repetition_penalty", 0.001),
        ("repetition_penalty", 101),
        ("repetition_context_size", -1),
        ("presence_penalty", 2.01),
        ("presence_penalty", float("inf")),
        ("presence_context_size", 0.5),
        ("frequency_penalty", -2.01),
        ("frequency_context_size", "all"),
        ("logit_bias", []),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"05": 1}),
        ("logit_bias", {"4294967296": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": None}),
        ("logit_bias", {"5": "1"}),
        ("logit_bias", {str(id_): 1 for id_ in range(MAX_BIASES + 1)}),
        ("bad_words", "one"),
        ("bad_words", ["x"] * (MAX_BAD_WORDS + 1)),
        ("allowed_token_ids", 5),
        ("n", 0),
        ("n", -1),
        ("n", 1.0),
    ],
)
def test_out_of_range_is_refused_by_name(parse: Parse, field: str, value: object) -> None:
    """The field is the error's param and is in its message, which stays short."""
    with pytest.raises(RequestError) as caught:
        parse({field: value})
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, field)
    assert f"`{field}`" in caught.value.message
    assert len(caught.value.message) < 250


@BOTH
@pytest.mark.parametrize(
    ("field", "values", "place"),
    [
        ("bad_words", ["x", ""], "bad_words[1]"),
        ("bad_words", [" "], "bad_words[0]"),
        ("bad_words", ["x" * 1_001], "bad_words[0]"),
        ("bad_words", [1], "bad_words[0]"),
        ("allowed_token_ids", [1, -1], "allowed_token_ids[1]"),
        ("allowed_token_ids", [True], "allowed_token_ids[0]"),
    ],
)
def test_an_item_is_refused_by_its_place(parse: Parse, field: str, values: list[object], place: str) -> None:
    """What is shown as wrong is what stands there."""
    with pytest.raises(RequestError) as caught:
        parse({field: values})
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, place)
    assert caught.value.message.startswith(f"`{place}` must be a ")


def test_the_message_names_value_and_limit() -> None:
    """So a client can be mended without the docs."""
    for fields, message in (
        ({"top_p": 1.5}, "`top_p` must be a number above 0 and of at most 1, not 1.5"),
        ({"top_p": 0}, "`top_p` must be a number above 0 and of at most 1, not 0"),
        ({"top_k": -2}, "`top_k` must be an integer from 0 to 9007199254740992, or -1 for off, not -2"),
        (
            {"repetition_penalty": 0.001},
            "`repetition_penalty` must be a number from 0.01 to 100, or 0 for off, not 0.001",
        ),
        ({"presence_penalty": 3}, "`presence_penalty` must be a number from -2 to 2, not 3"),
        (
            {"logit_bias": {"5": 101}},
            '`logit_bias` must be a map of token ids to numbers from -100 to 100, not {"5":101}',
        ),
        ({"bad_words": ["x"] * 513}, "`bad_words` has 513 words, at most 512 are taken"),
    ):
        with pytest.raises(RequestError) as caught:
            chat(fields)
        assert caught.value.message == message


# Every field that takes one number, with a value below and one above what it takes.
NUMBERS = {
    "temperature": (-1, 101),
    "top_p": (-1, 2),
    "top_k": (-2, 2**60),
    "min_p": (-1, 2),
    "xtc_probability": (-1, 2),
    "xtc_threshold": (-1, 2),
    "repetition_penalty": (-1, 101),
    "repetition_context_size": (-1, 2**60),
    "presence_penalty": (-3, 3),
    "presence_context_size": (-1, 2**60),
    "frequency_penalty": (-3, 3),
    "frequency_context_size": (-1, 2**60),
    "seed": (-(2**63) - 1, 2**63),
    "n": (0,),
    "min_tokens": (-1, 2**60),
    "max_tokens": (0,),
    "max_completion_tokens": (0,),
    "timeout": (-1, 10**9),
    "top_logprobs": (-2, 21),
}
_RANGE = re.compile(
    r"must be an? (?P<kind>number|integer)(?: of at least (?P<only>[^\s,]+)|(?: from (?P<least>\S+) to| above "
    r"(?P<above>\S+) and of at most) (?P<most>[^\s,]+)(?:, or (?P<off>\S+) for off)?), not "
)


def _takes(parse: Parse, field: str, value: float) -> bool:
    try:
        parse({"logprobs": True, field: value})
    except RequestError as error:
        return error.param != field
    return True


@BOTH
@pytest.mark.parametrize("field", NUMBERS)
def test_a_range_in_a_message_is_the_range_that_is_taken(parse: Parse, field: str) -> None:
    """Both its ends are taken, what lies just outside is not, and an off outside of it is."""
    for outside in NUMBERS[field]:
        with pytest.raises(RequestError) as caught:
            parse({"logprobs": True, field: outside})
        said = _RANGE.search(caught.value.message)
        assert said is not None, caught.value.message
        number = int if said["kind"] == "integer" else float
        tiny = 1 if number is int else 1e-9
        most = 2**80 if said["most"] is None else number(said["most"])
        assert _takes(parse, field, most)
        assert _takes(parse, field, most + tiny) == (said["most"] is None)
        if said["above"] is not None:
            assert not _takes(parse, field, number(said["above"]))
            assert _takes(parse, field, number(said["above"]) + tiny)
        else:
            least = number(said["least"] or said["only"])
            assert _takes(parse, field, least)
            below = least - tiny
            assert _takes(parse, field, below) == (said["off"] is not None and number(said["off"]) == below)
        if said["off"] is not None:
            assert _takes(parse, field, number(said["off"]))


def test_the_readme_lists_every_sampling_field() -> None:
    """Its table has each field that changes what is sampled, under names that both dialects honour."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Sampling\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    others = {"max_tokens", "max_completion_tokens", "timeout"}
    assert set(NUMBERS) - others <= listed
    assert {name for name in listed if not isinstance(CHAT_FIELDS.get(name), Honoured)} == set()
