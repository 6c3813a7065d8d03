"""Every field that constrains a reply becomes one grammar, or a 400 by its name."""

import json
from typing import Any

import pytest

from frontend.dialects.base import Constraint, Generation
from frontend.dialects.openai_chat import parse_chat
from frontend.dialects.openai_completions import parse_completion
from frontend.dialects.openai_constraints import grammar_of
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"enum": [1, None, "ü"]}}}
SCHEMA_GRAMMAR = Grammar(kind="json_schema", text=json.dumps(SCHEMA, separators=(",", ":"), ensure_ascii=False))
ANY_OBJECT = Grammar(kind="json_object", text="")
GBNF = 'root ::= "a" start\nstart ::= "b"'
LARK = 'start: "a" | "::="'


def parsed(**fields: Any) -> Generation:
    """A chat body with these fields."""
    return parse_chat({"messages": [{"role": "user", "content": "x"}], **fields})


def refused(**fields: Any) -> RequestError:
    """The error of a chat body with these fields."""
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    return caught.value


@pytest.mark.parametrize(
    ("field", "value", "grammar"),
    [
        ("response_format", {"type": "json_object"}, ANY_OBJECT),
        ("response_format", {"type": "json_object", "schema": SCHEMA}, SCHEMA_GRAMMAR),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}},
            SCHEMA_GRAMMAR,
        ),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, SCHEMA_GRAMMAR),
        ("guided_json", SCHEMA, SCHEMA_GRAMMAR),
        ("guided_json", json.dumps(SCHEMA), SCHEMA_GRAMMAR),
        ("guided_regex", "a+", Grammar(kind="regex", text="a+")),
        ("guided_choice", ["yes", "nö"], Grammar(kind="choice", text='["yes","nö"]')),
        ("guided_grammar", GBNF, Grammar(kind="gbnf", text=GBNF)),
        ("grammar", LARK, Grammar(kind="lark", text=LARK)),
        ("json_schema", SCHEMA, SCHEMA_GRAMMAR),
        ("structured_outputs", {"json": SCHEMA, "disable_any_whitespace": True}, SCHEMA_GRAMMAR),
        ("guided_json", True, Grammar(kind="json_schema", text="{}")),
        ("json_schema", "true", Grammar(kind="json_schema", text="{}")),
        ("structured_outputs", {"json": True}, Grammar(kind="json_schema", text="{}")),
        ("structured_outputs", {"json_object": True}, ANY_OBJECT),
        ("structured_outputs", {"regex": "a", "json_object": False}, Grammar(kind="regex", text="a")),
        ("structured_outputs", {"choice": ["a"]}, Grammar(kind="choice", text='["a"]')),
        ("structured_outputs", {"grammar": GBNF}, Grammar(kind="gbnf", text=GBNF)),
    ],
)
def test_a_field_becomes_its_grammar(field: str, value: object, grammar: Grammar) -> None:
    """In both dialects; a schema keeps the order of its properties, in which they will be written."""
    expected = Constraint(field, grammar)
    assert parsed(**{field: value}).constraint == expected
    assert parse_completion({"prompt": "x", field: value}).constraint == expected


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_plain_text_is_no_constraint(value: object) -> None:
    """As when the field is left out; another field may then constrain."""
    assert parsed(response_format=value).constraint is None
    assert parsed(response_format=value, guided_regex="a").constraint == Constraint(
        "guided_regex", Grammar(kind="regex", text="a")
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        ({"guided_json": 7}, "guided_json"),
        ({"guided_json": False}, "guided_json"),
        ({"guided_json": "false"}, "guided_json"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": False}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[" * 100_000}, "guided_json"),
        ({"guided_regex": ["a"]}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", 1]}, "guided_choice[1]"),
        ({"grammar": {"root": "x"}}, "grammar"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"response_format": {"type": "json_object"}, "grammar": LARK}, "grammar"),
    ],
)
def test_a_malformed_constraint_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """With its value, and two constraints at once with both names."""
    error = refused(**fields)
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, param)
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        (
            {"structured_outputs": {"json": {}, "disable_additional_properties": True}},
            "structured_outputs.disable_additional_properties",
        ),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ],
)
def test_what_cannot_be_honoured_is_refused(fields: dict[str, Any], param: str) -> None:
    """An option that would change the text, and that nothing here follows."""
    error = refused(**fields)
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, param)


def test_unknown_names_inside_are_named() -> None:
    """Ignored, and told to the client, as on the outside."""
    generation = parsed(response_format={"type": "json_object", "zebra": 1})
    assert generation.ignored == ("response_format.zebra",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (GBNF, "gbnf"),
        ("# a comment\nroot::=[a-z]+", "gbnf"),
        (LARK, "lark"),
        ('%llguidance {}\nstart: "::="', "lark"),
        ('start[capture]: "a"', "lark"),
        ("start ::= [a]\nroot ::= start", "gbnf"),
        ("nonsense", "lark"),
    ],
)
def test_the_language_of_a_grammar_is_seen(text: str, kind: str) -> None:
    """GBNF by its ::=, Lark by its start rule, also where a string holds the other's sign."""
    assert grammar_of(text).kind == kind
