"""Calls written as tags: names in quotes or not, attributes, closing tags that are forgotten."""

import json

import pytest

from frontend.parsers.base import ArgumentsText, CallBegun, Reading
from frontend.parsers.source import Source
from frontend.parsers.tagged_calls import CallTags, TagHead, attributes_of, tag_head, tagged_section
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read

TAGS = CallTags(
    call="<c=", call_end="</c>", argument="<a=", argument_end="</a>", trim="line", is_lax=True, has_cdata=True
)


def section(source: Source) -> Reading[None]:
    """Calls in these tags."""
    return tagged_section(source, TOOLS, TAGS, "</s>")


def told(text: str) -> list[str]:
    """The calls of a section, each with its arguments, the same at every split."""
    found: set[tuple[str, ...]] = set()
    for pieces in splits(text):
        read = Read(section, pieces)
        lines: list[str] = []
        for event in read.events:
            if isinstance(event, CallBegun):
                lines.append(event.name + " ")
            elif isinstance(event, ArgumentsText):
                lines[-1] += event.text
        found.add((*lines, "malformed" if read.is_malformed else "rest:" + read.rest))
    assert len(found) == 1
    return list(found.pop())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<c=now></c></s> x", ["now {}", "rest: x"]),
        ("\n<c=now>\n</c>\n<c=now>\n</c>\n</s>", ["now {}", "now {}", "rest:"]),
        ("<c=now></c> more", ["now {}", "rest:more"]),
        ("<c=weather><a=city>Oslo</a><a=days>3</a></c></s>", ['weather {"city": "Oslo", "days": 3}', "rest:"]),
        ("<c=weather><a=city>a\n<a=days>3\n</c></s>", ['weather {"city": "a", "days": 3}', "rest:"]),
        ("<c=weather><a=city>a <a=b> </c></a></c></s>", ['weather {"city": "a <a=b> </c>"}', "rest:"]),
        ("<c=weather><a=city><![CDATA[</a>]]></a></c></s>", ['weather {"city": "</a>"}', "rest:"]),
        ("<c=search><a=anything string=\"true\">5</a></c></s>", ['search {"anything": "5"}', "rest:"]),
        ("<c=search><a=anything string='false'>5</a></c></s>", ['search {"anything": 5}', "rest:"]),
        ("<c='weather'><a=\"city\">x</a></c>", ['weather {"city": "x"}', "rest:"]),
        ("</s>", ["malformed"]),
        ("", ["malformed"]),
        ("<c=nuke></c></s>", ["malformed"]),
        ("<c=></c></s>", ["malformed"]),
        ("<c=now>text</c></s>", ["malformed"]),
    ],
)  # fmt: skip
def test_a_section_is_read_alike_at_every_split(text: str, expected: list[str]) -> None:
    """Whole, lax and malformed."""
    assert expected == told(text)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("now>", TagHead("now", {})),
        ('"a b" string="true">', TagHead("a b", {"string": "true"})),
        ("now\n", TagHead("now", {})),
        ("now string='x' >", TagHead("now", {"string": "x"})),
    ],
)
def test_a_head_has_a_name_and_attributes(text: str, head: TagHead) -> None:
    """Up to its bracket, or the line's end where the bracket is forgotten."""
    assert [Read(tag_head, pieces).result for pieces in splits(text)] == [head] * (len(text) + 1)


def test_attributes_are_spelled_as_in_xml() -> None:
    """Quotes and ampersands of a name."""
    assert attributes_of(" key=\"a&quot;&amp;\" type='b'") == {"key": 'a"&', "type": "b"}


def test_arguments_are_one_object() -> None:
    """Also with a name that needs escapes."""
    assert json.loads(told("<c=search><a='a\"b'>x</a></c></s>")[0].removeprefix("search ")) == {'a"b': "x"}
