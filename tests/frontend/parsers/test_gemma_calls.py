"""Gemma's calls: bare keys, strings between marks of their own, anything nested."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, Reading
from frontend.parsers.gemma_calls import MAX_DEPTH, gemma_call
from frontend.parsers.source import Source
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read

QUOTE = "<|q|>"
_TEXT = some.text().filter(lambda text: "<" not in text)
_LEAVES = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | _TEXT
_KEYS = some.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True)
VALUES = some.recursive(
    _LEAVES, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(_KEYS, inner, max_size=4), max_leaves=8
)


def call(source: Source) -> Reading[None]:
    """One call with these quotes."""
    return gemma_call(source, QUOTE)


def written(value: Any) -> str:
    """As Gemma's templates write it."""
    match value:
        case str():
            return QUOTE + value + QUOTE
        case dict():
            return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


def arguments_of(pieces: list[str]) -> Any:
    """The arguments of the one call in a text."""
    read = Read(call, pieces)
    assert not read.is_malformed
    assert [type(event) for event in read.events if not isinstance(event, ArgumentsText)] == [CallBegun, CallEnded]
    return json.loads("".join(event.text for event in read.events if isinstance(event, ArgumentsText)))


@given(some.dictionaries(_KEYS, VALUES, max_size=3), some.data())
def test_arguments_are_told_as_their_values(arguments: dict[str, Any], data: some.DataObject) -> None:
    """Cut in two anywhere."""
    text = f"call:f{written(arguments)}"
    cut = data.draw(some.integers(0, len(text)))
    assert arguments == arguments_of([text[:cut], text[cut:]])


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        ("", {}),
        (" ", {}),
        (" a : 1 , b : [ ] , ", {"a": 1, "b": []}),
        (f"{QUOTE}a b{QUOTE}:1", {"a b": 1}),
        ('"a": "x\\n", "b": {"c": null}', {"a": "x\n", "b": {"c": None}}),
        ("a:Oslo,b:1.50,c:2024-01-31", {"a": "Oslo", "b": 1.5, "c": "2024-01-31"}),
    ],
)
def test_other_writings_are_read_alike_at_every_split(inside: str, arguments: dict[str, Any]) -> None:
    """Spaces, JSON's quotes, text without quotes."""
    text = f"\ncall:f{{{inside}}}"
    assert [arguments_of(pieces) for pieces in splits(text)] == [arguments] * (len(text) + 1)


@pytest.mark.parametrize("text", ["", "call:f", "call:{}", "f{}", "call:f{a}", "call:f{a:", "call:f{:1}", "call:a b{}"])
def test_what_is_no_call_is_malformed(text: str) -> None:
    """Wherever it is cut."""
    assert {Read(call, pieces).is_malformed for pieces in splits(text)} == {True}


def test_nesting_has_an_end() -> None:
    """A million brackets cost one reply, not the process."""
    assert Read(call, [f"call:f{{a:{'[' * (MAX_DEPTH + 2)}"]).is_malformed
