"""Several calls as JSON objects: with brackets and commas, and without."""

import pytest

from frontend.parsers.base import CallBegun
from frontend.parsers.json_lists import call_objects
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read

A, B = '{"name": "a", "arguments": {}}', '{"name": "b", "arguments": {"x": "]"}}'


@pytest.mark.parametrize(
    ("text", "names", "rest"),
    [
        (f"[{A}, {B}]x", ["a", "b"], "x"),
        (f" [\n{A},\n{B},\n]\n", ["a", "b"], "\n"),
        (f"{A}\n{B}\n</end>", ["a", "b"], "</end>"),
        (A, ["a"], ""),
        (f"[{A}", ["a"], ""),
    ],
)
def test_objects_are_read_alike_at_every_split(text: str, names: list[str], rest: str) -> None:
    """Whatever stands between them."""
    for pieces in splits(text):
        read = Read(call_objects, pieces)
        told = [event.name for event in read.events if isinstance(event, CallBegun)]
        assert (names, rest, False) == (told, read.rest, read.is_malformed)


@pytest.mark.parametrize("text", ["", "[]", "[1]", "{}", "a"])
def test_no_object_is_malformed(text: str) -> None:
    """So that the text comes back as it was written."""
    assert {Read(call_objects, pieces).is_malformed for pieces in splits(text)} == {True}
