"""JsonScanner: finds the end of a value and hands it on as valid JSON, wherever the text is cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.parsers.json_scan import MAX_DEPTH, MAX_SCALAR_CHARACTERS, JsonScanner, escaped
from tests.frontend.parsers.golden_cases import splits

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def scanned(pieces: list[str]) -> tuple[str, str, bool]:
    """The JSON that was told, the text behind it, and whether the value is whole."""
    scanner, told, left = JsonScanner(), "", ""
    for index, piece in enumerate(pieces):
        left += piece
        told += scanner.feed(left, is_last=index == len(pieces) - 1)
        left = left[scanner.read :]
    return told, left, scanner.is_done


@settings(max_examples=60, deadline=None)
@given(value=VALUES, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_valid_json_comes_out_as_it_is_at_every_split(value: Any, is_ascii: bool, indent: int | None) -> None:
    """With what follows it left alone."""
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).replace("\x7f", "")
    assert {scanned(pieces) for pieces in splits(text + " }rest")} == {(text, " }rest", True)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a\nb\t\x01"', "a\nb\t\x01"),
        (r'"it\'s \d \x"', r"it's \d \x"),
        (r'"\u12zz"', r"\u12zz"),
        ('{"a": True, "b": [False, None]}', {"a": True, "b": [False, None]}),
    ],
)
def test_slips_of_models_are_mended_at_every_split(text: str, expected: object) -> None:
    """Raw control characters and unknown escapes in strings, Python's words."""
    found = {scanned(pieces) for pieces in splits(text)}
    assert [(json.loads(told), left, is_whole) for told, left, is_whole in found] == [(expected, "", True)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a" 1}', '{"a" '),
        ('{"a": 01}', '{"a": '),
        ("[1,]", "[1,"),
        ('{"a": 1,}', '{"a": 1,'),
        ("{'a': 1}", "{"),
        ('{"a": nul', '{"a": '),
        ("[1}", "[1"),
        ('["a\\', '["a'),
        ('{"a": 1', '{"a": 1'),
        ("", ""),
    ],
)
def test_what_is_no_json_stops_where_it_breaks(text: str, told: str) -> None:
    """What was right before it is told, at every split, and nothing of the rest."""
    found = {scanned(pieces) for pieces in splits(text)}
    assert {(before, is_whole) for before, _, is_whole in found} == {(told, False)}


def test_depth_is_bounded() -> None:
    """A model that opens brackets for ever ends as text."""
    assert scanned(["[" * MAX_DEPTH + "]" * MAX_DEPTH])[2]
    assert not scanned(["[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)])[2]


@given(st.text())
def test_escaped_text_is_the_inside_of_a_json_string(text: str) -> None:
    """Read back it is the same."""
    assert json.loads(f'"{escaped(text)}"') == text


def test_a_number_is_bounded() -> None:
    """It is held until it is whole, so each more digit would read all of them; at once and in pieces alike."""
    for size in (1, 7, 5_000):
        for digits, is_broken in ((MAX_SCALAR_CHARACTERS, False), (MAX_SCALAR_CHARACTERS + 1, True)):
            scanner, held, told = JsonScanner(), "", ""
            text = "[" + "1" * digits + "]"
            for at in range(0, len(text), size):
                held += text[at : at + size]
                told += scanner.feed(held)
                held = held[scanner.read :]
            assert (scanner.is_broken, scanner.is_done) == (is_broken, not is_broken)
            assert told == ("[" if is_broken else text)
