"""TypedArguments: untyped text between markers is told as one JSON object, strings while they come."""

import json
from typing import Any

import pytest

from frontend.parsers.base import ArgumentsText, Reading
from frontend.parsers.source import Source
from frontend.parsers.typed_arguments import Trim, TypedArguments, trimmed
from tests.fakes.tools import SEARCH, WRITE
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read


def two_values(source: Source, trim: Trim) -> Reading[None]:
    """A string and a list, each up to a semicolon."""
    arguments = TypedArguments(SEARCH, trim)
    yield from arguments.value(source, "query", ";")
    yield from arguments.value(source, "tags", ";")
    yield arguments.ended()


def joined(read: Read) -> Any:
    """The object that was told."""
    return json.loads("".join(event.text for event in read.events if isinstance(event, ArgumentsText)))


@pytest.mark.parametrize("trim", ["space", "line", "nothing"])
@pytest.mark.parametrize("text", ["a", '\n\n a "b"\n\n', " \n", "", "\n", "5", "a\n\nb\\"])
def test_values_are_typed_and_trimmed_at_every_split(text: str, trim: Trim) -> None:
    """The same streamed as at once."""
    read = [Read(lambda source: two_values(source, trim), pieces) for pieces in splits(f'{text};["x"];')]
    assert [joined(one) for one in read] == [{"query": trimmed(text, trim), "tags": ["x"]}] * len(read)


def test_a_string_is_told_while_it_comes() -> None:
    """A long file's content does not wait for its end."""
    source = Source()
    arguments = TypedArguments(WRITE, "line")
    steps = arguments.value(source, "content", "</end>")
    told = []
    for piece in ["\nab", "c\n", "d<"]:
        source.put(piece)
        told += ["".join(event.text for event in iter(steps.__next__, None) if isinstance(event, ArgumentsText))]
    assert told == ['{"content": "ab', "c", "\\nd"]


def test_no_arguments_are_an_empty_object() -> None:
    """Never nothing."""
    assert TypedArguments(WRITE, "line").ended() == ArgumentsText("{}")
