"""Calls written as a name and pairs of tags: with and without lines, or as JSON."""

import pytest

from frontend.parsers.base import ArgumentsText, CallBegun, Reading
from frontend.parsers.keyed_calls import KeyTags, keyed_call
from frontend.parsers.source import Source
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read

TAGS = KeyTags(key="<k>", key_end="</k>", value="<v>", value_end="</v>", end="</c>")


def call(source: Source) -> Reading[None]:
    """One call in these tags."""
    return keyed_call(source, TOOLS, TAGS)


@pytest.mark.parametrize(
    ("text", "name", "arguments", "rest"),
    [
        ("now</c>x", "now", "{}", "x"),
        ("\nnow\n</c>", "now", "{}", ""),
        ("weather<k>city</k><v>Oslo</v><k>days</k><v>3</v></c>", "weather", '{"city": "Oslo", "days": 3}', ""),
        ("weather\n<k>city</k>\n<v> a\n</v>\n</c>\n", "weather", '{"city": " a\\n"}', "\n"),
        ('{"name": "now"}</c>x', "now", "{}", "x"),
        ('{"name": "weather", "arguments": {"city": "x"}}', "weather", '{"city": "x"}', ""),
    ],
)
def test_a_call_is_read_alike_at_every_split(text: str, name: str, arguments: str, rest: str) -> None:
    """Its name, its arguments, and what stands behind it."""
    for pieces in splits(text):
        read = Read(call, pieces)
        told = "".join(event.text for event in read.events if isinstance(event, ArgumentsText))
        names = [event.name for event in read.events if isinstance(event, CallBegun)]
        assert ([name], arguments, rest, False) == (names, told, read.rest, read.is_malformed)


@pytest.mark.parametrize("text", ["", "nuke</c>", "now", "</c>", "now(1)</c>", "now<k>a", '{"name": 5}</c>'])
def test_what_is_no_call_tells_no_whole_one(text: str) -> None:
    """An unknown name, or a text that ends too early."""
    assert {Read(call, pieces).is_malformed for pieces in splits(text)} == {True}
