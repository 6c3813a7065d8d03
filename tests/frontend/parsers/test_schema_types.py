"""Untyped text becomes the JSON that the argument's schema asks for."""

import json
from typing import Any

import pytest

from frontend.parsers.json_scan import MAX_SCALAR_CHARACTERS
from frontend.parsers.schema_types import UNKNOWN, JsonText, typed_json, types_of
from tests.frontend.parsers.golden_cases import splits


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "int"}, {"integer"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"const": 1.5}, {"number"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "string"}, {"$ref": "#/x"}]}, set()),
        ({"allOf": [{"description": "x"}, {"type": "boolean"}]}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({}, set()),
        (None, set()),
        (True, set()),
    ],
)
def test_types_of_a_schema(schema: Any, types: set[str]) -> None:
    """Empty where it does not say."""
    assert types_of(schema) == types


def test_a_schema_that_goes_on_for_ever_is_unknown() -> None:
    """Depth is bounded."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(50):
        schema = {"anyOf": [schema]}
    assert types_of(schema) == UNKNOWN


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"integer"}, 5),
        (" 5\n", {"integer"}, 5),
        ("5.0", {"integer"}, 5),
        ("5.5", {"integer"}, "5.5"),
        ("five", {"integer"}, "five"),
        ("5", {"string"}, "5"),
        (" a\n", {"string"}, " a\n"),
        ("null", {"string"}, "null"),
        ("null", {"string", "null"}, None),
        ("None", {"integer", "null"}, None),
        ("5", {"integer", "string"}, 5),
        ("x", {"integer", "string"}, "x"),
        ("1e3", {"number"}, 1000.0),
        ("+1.", {"number"}, 1.0),
        ("123456789012345678901234567890", {"integer"}, 123456789012345678901234567890),
        ("nan", {"number"}, "nan"),
        ("True", {"boolean"}, True),
        ("false", {"boolean"}, False),
        ("yes", {"boolean"}, "yes"),
        ('{"a": [1, "b"]}', {"object"}, {"a": [1, "b"]}),
        ("{'a': True}", {"object"}, {"a": True}),
        ("[1, 2", {"array"}, "[1, 2"),
        ('["a"]', {"array"}, ["a"]),
        ("(1, 2)", {"array"}, "(1, 2)"),
        ("[1]", set(), [1]),
        ("7", set(), 7),
        ('say "hi"', set(), 'say "hi"'),
        ("", set(), ""),
        ("__import__('os')", {"object"}, "__import__('os')"),
    ],
)
def test_text_becomes_the_value_that_it_means(text: str, types: set[str], value: Any) -> None:
    """A string where it fits no other type."""
    assert json.loads(typed_json(text, frozenset(types))) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, "b c"]}', {"a": [1, "b c"]}),
        (" \n[1,\n 2] \n ", [1, 2]),
        ("\u00a0 7\u2003", 7),
        (' "x \\" y" ', 'x " y'),
        ("-1.5e3", -1500.0),
        ("None", None),
    ],
)
def test_json_is_found_at_every_split(text: str, value: Any) -> None:
    """With white space around it that JSON does not know, too."""
    for pieces in splits(text):
        found = JsonText()
        for piece in pieces:
            found.feed(piece)
        whole = found.whole()
        assert whole is not None
        assert json.loads(whole) == value
        assert typed_json(text, UNKNOWN, found) == typed_json(text, UNKNOWN)


@pytest.mark.parametrize("text", ["", "  ", "[1, 2", "[1] x", "[1] [2]", "1 2", "{'a': 1}", "nan", "x", '"a" "b"'])
def test_what_is_no_json_is_none_at_every_split(text: str) -> None:
    """Nor is more than one value, or the beginning of one."""
    for pieces in splits(text):
        found = JsonText()
        for piece in pieces:
            found.feed(piece)
        assert found.whole() is None


def test_a_number_without_end_is_text() -> None:
    """It would be read anew with each of its digits."""
    most = "1" * MAX_SCALAR_CHARACTERS
    assert typed_json(most, frozenset({"integer"})) == most
    assert typed_json(most + "1", frozenset({"integer"})) == f'"{most}1"'


def test_a_very_long_python_literal_is_text() -> None:
    """Python would read it at once, and nothing else could be done meanwhile."""
    short, long = (str(["a"] * count) for count in (1_000, 10_000))
    assert json.loads(typed_json(short, frozenset({"array"}))) == ["a"] * 1_000
    assert json.loads(typed_json(long, frozenset({"array"}))) == long
