"""Arguments between tags as a grammar: in the schema's order, strings as they are, all else as JSON that fits."""

from typing import Any

import pytest

from frontend.dialects.base import Tool
from frontend.errors import RequestError
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import CallSetting, ToolCallFormat, tool_grammar
from tests.fakes.grammars import takes

TAGS = ArgumentTags("<a=", ">", "</a>", other_neck=" json>")
FORMAT = ToolCallFormat(begin="<c=", name_neck=">", end="</c>", tags=TAGS)
SCHEMA = {
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "maximum": 7},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["city"],
    "$defs": {"tag": {"type": "string", "maxLength": 3}},
}


def fits(inside: str, schema: dict[str, Any] = SCHEMA, **fields: Any) -> bool:
    """Whether a call with these arguments fits."""
    tool = Tool(name="weather", parameters=schema, **fields)
    grammar = tool_grammar((tool,), "required", CallSetting(call_format=FORMAT))
    assert grammar is not None
    return takes(grammar.kind, grammar.text, f"<c=weather>{inside}</c>")


@pytest.mark.parametrize(
    ("inside", "is_fit"),
    [
        ("<a=city>Oslo</a>", True),
        ('<a=city>a "b" </b> <\n</a><a=days json>3</a>', True),
        ("<a=city></a><a=unit>F</a>", True),
        ('<a=city>x</a><a=tags json>["a", "bc"]</a>', True),
        ("", False),
        ("<a=days json>3</a>", False),
        ("<a=city>x</a><a=days json>8</a>", False),
        ("<a=city>x</a><a=days>3</a>", False),
        ("<a=city>x</a><a=unit>K</a>", False),
        ("<a=days json>3</a><a=city>x</a>", False),
        ('<a=city>x</a><a=tags json>["abcd"]</a>', False),
        ("<a=city>x</a><a=zip>1</a>", False),
    ],
)
def test_arguments_fit_their_schema(inside: str, is_fit: bool) -> None:
    """Those that are required, and no others."""
    assert fits(inside) == is_fit


def test_a_tool_without_arguments_has_none() -> None:
    """Nothing stands between its tags."""
    assert fits("", {})
    assert not fits("<a=city>x</a>", {})


def test_a_strict_string_that_cannot_be_held_is_refused() -> None:
    """By its name; without strict it is text."""
    schema = {"properties": {"city": {"type": "string", "pattern": "^[A-Z]"}}}
    assert fits("<a=city>oslo</a>", schema)
    with pytest.raises(RequestError, match="city has a pattern"):
        fits("", schema, is_strict=True)
