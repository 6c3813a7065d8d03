"""Calls written as Python: any literal is told as JSON of the same value, wherever the text is cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded
from frontend.parsers.python_calls import MAX_DEPTH, listed_calls, python_call
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read

_NUMBERS = some.integers() | some.floats(allow_nan=False, allow_infinity=False)
_LEAVES = some.none() | some.booleans() | _NUMBERS | some.text()
LITERALS = some.recursive(
    _LEAVES, lambda item: some.lists(item, max_size=4) | some.dictionaries(some.text(), item, max_size=4), max_leaves=8
)


def arguments_of(text: str, pieces: list[str] | None = None) -> Any:
    """The arguments of the one call in a text."""
    read = Read(python_call, [text] if pieces is None else pieces)
    assert not read.is_malformed
    assert [type(event) for event in read.events if not isinstance(event, ArgumentsText)] == [CallBegun, CallEnded]
    return json.loads("".join(event.text for event in read.events if isinstance(event, ArgumentsText)))


@given(LITERALS, some.data())
def test_a_literal_is_told_as_its_value(value: object, data: some.DataObject) -> None:
    """As repr writes it, cut in two anywhere."""
    text = f"f(first={value!r}, second=0)"
    cut = data.draw(some.integers(0, len(text)))
    assert arguments_of(text, [text[:cut], text[cut:]]) == {"first": value, "second": 0}


@given(LITERALS)
def test_json_is_told_as_its_value(value: object) -> None:
    """Templates write containers as JSON."""
    assert arguments_of(f"f(a={json.dumps(value, ensure_ascii=False)})") == {"a": value}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("(1, 2)", [1, 2]),
        ("(1,)", [1]),
        ("[1, 2, ]", [1, 2]),
        ("{}", {}),
        ("{1: 'a', None: 2, True: 3}", {"1": "a", "null": 2, "true": 3}),
        ("0x1F", 31),
        ("1_000", 1000),
        ("+7", 7),
        (".5", 0.5),
        ("007", "007"),
        ("2024-01-31", "2024-01-31"),
        ("Oslo", "Oslo"),
        ("x(1, 2)[3]", "x(1, 2)[3]"),
        ("r'\\d'", "\\d"),
        ("u'a'", "a"),
        ("'''it's \"'''", "it's \""),
        ("''", ""),
        ("'\\x41\\u00e9\\U0001F600\\101\\0\\q\\\n'", "Aé😀A\0\\q"),
        ("'\\ud83d\\ude00'", "😀"),
        ("'\\u12'", "\\u12"),
    ],
)
def test_a_writing_has_its_value_at_every_split(written: str, value: object) -> None:
    """What repr never writes, and models do."""
    text = f"f(a={written}, b=1)"
    assert [arguments_of(text, pieces) for pieces in splits(text)] == [{"a": value, "b": 1}] * (len(text) + 1)


@pytest.mark.parametrize(
    ("written", "value"),
    [("'it's'", "it's"), ("'a', 'b'", "a', 'b"), ("'f('x')'", "f('x')"), ('"say "hi", ok"', 'say "hi", ok')],
)
def test_quotes_that_nobody_escaped_are_text(written: str, value: str) -> None:
    """Several templates write strings so, and their models after them."""
    text = f"[f(a={written}, b='c'), g()]"[1:]
    read = [Read(listed_calls, pieces) for pieces in splits(text)]
    told = {"".join(event.text for event in one.events if isinstance(event, ArgumentsText)) for one in read}
    assert told == {json.dumps({"a": value, "b": "c"}) + "{}"}


@pytest.mark.parametrize("text", ["f", "f(", "f(a", "f(1)", "f('a')", "f(a:1)", "(a=1)", "f(**a)", " f()", "f(a=1"])
def test_what_is_no_call_is_malformed(text: str) -> None:
    """Before anything of it is told, but for the last."""
    assert {Read(python_call, pieces).is_malformed for pieces in splits(text)} == {True}


def test_nesting_has_an_end() -> None:
    """A million brackets cost one reply, not the process."""
    assert Read(python_call, [f"f(a={'[' * (MAX_DEPTH + 2)}"]).is_malformed
    deep = MAX_DEPTH - 1
    assert json.dumps(arguments_of(f"f(a={'[' * deep}{']' * deep})")).count("[") == deep


def test_a_string_is_told_while_it_comes() -> None:
    """A long file's content does not wait for its end."""
    told: list[str] = []
    for end in range(9, 14):
        events = Read(python_call, ["f(a='abcdefgh'"[:end]]).events
        told.append("".join(event.text for event in events if isinstance(event, ArgumentsText)))
    assert told == [f'{{"a": "{"abcdefgh"[:length]}' for length in range(4, 9)]
