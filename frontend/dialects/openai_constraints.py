"""The fields that constrain a reply's text: OpenAI's response_format, vLLM's guided ones, llama.cpp's grammars.

Owns which grammar a field means; the engine compiles it, and its words on a bad one go to the client under the
name of the field that was sent.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from frontend.dialects.base import Constraint
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.values import as_list, as_object, as_text, read_bool, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar, GrammarKind

_COMPACT: Final = NeutralOnly(advice="JSON is written without white space: leave it out")

CONSTRAINT_FIELDS: Final[FieldTable] = {
    "response_format": Honoured("json_schema, strict or not, and json_object; JSON is written without white space"),
    "guided_json": Honoured("a JSON schema, as an object or as text"),
    "guided_regex": Honoured("without look-around and back-references"),
    "guided_choice": Honoured("an array of strings"),
    "guided_grammar": Honoured("Lark or GBNF"),
    "guided_decoding_backend": Harmless("llguidance does it all"),
    "guided_whitespace_pattern": _COMPACT,
    "structured_outputs": Honoured("one of json, json_object, regex, choice and grammar"),
    "structural_tag": NeutralOnly(),
    "grammar": Honoured("Lark or GBNF, as in llama.cpp"),
    "json_schema": Honoured("a JSON schema, as in llama.cpp"),
}

STRUCTURED_FIELDS: Final[FieldTable] = {
    "json": Honoured(),
    "json_object": Honoured(),
    "regex": Honoured(),
    "choice": Honoured(),
    "grammar": Honoured(),
    "disable_fallback": Harmless("there is one backend"),
    "disable_any_whitespace": Harmless("JSON is written without white space"),
    "disable_additional_properties": NeutralOnly((False,), "say additionalProperties in the schema"),
    "whitespace_pattern": _COMPACT,
    "structural_tag": NeutralOnly(),
}

RESPONSE_FORMAT_FIELDS: Final[FieldTable] = {
    "type": Honoured(),
    "json_schema": Honoured(),
    "schema": Honoured("beside json_object, as in llama.cpp"),
}

JSON_SCHEMA_FIELDS: Final[FieldTable] = {
    "schema": Honoured(),
    "name": Harmless("for the client's own use"),
    "description": Named(),
    "strict": Harmless("what is not strict is constrained, too"),
}

_RESPONSE_TYPES: Final = '"text", "json_object" or "json_schema"'
_LARK: Final = re.compile(r"^\s*(?:%llguidance\b|start\b[^\n:]*:(?!:=))", re.MULTILINE)


_ANY_OBJECT: Final = Grammar(kind="json_object", text="")


@dataclass(frozen=True, slots=True)
class ReadConstraint:
    """ignored: names inside the fields that have no effect."""

    constraint: Constraint | None = None
    ignored: tuple[str, ...] = ()


# Of a value and the name it has to the client.
_Maker = Callable[[object, str], Grammar]
_Reader = Callable[[object, str], ReadConstraint]


def read_constraint(body: Mapping[str, object]) -> ReadConstraint:
    """The one constraint of a body. Raises RequestError for several, and for one that is malformed."""
    read = [reader(body[name], name) for name, reader in _READERS.items() if body.get(name) is not None]
    found = [each.constraint for each in read if each.constraint is not None]
    if len(found) > 1:
        names = " and ".join(f"`{each.field}`" for each in found)
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{names} exclude each other: send one constraint", found[1].field
        )
    ignored = tuple(name for each in read for name in each.ignored)
    return ReadConstraint(found[0] if found else None, ignored)


def grammar_of(text: str) -> Grammar:
    """Lark where a rule `start` or a %llguidance line stands; GBNF where its `::=` does; else Lark, which will say."""
    kind: GrammarKind = "gbnf" if "::=" in text and not _LARK.search(text) else "lark"
    return Grammar(kind=kind, text=text)


def _response_format(value: object, field: str) -> ReadConstraint:
    """OpenAI's object, and llama.cpp's json_object with a schema."""
    fields = as_object(value, field)
    ignored = check_fields(fields, RESPONSE_FORMAT_FIELDS, f"{field}.")
    match fields.get("type"):
        case "text":
            return ReadConstraint(ignored=ignored)
        case "json_object":
            schema = fields.get("schema")
            grammar = _ANY_OBJECT if schema is None else schema_grammar(schema, f"{field}.schema")
        case "json_schema":
            inner = as_object(fields.get("json_schema"), f"{field}.json_schema")
            ignored += check_fields(inner, JSON_SCHEMA_FIELDS, f"{field}.json_schema.")
            grammar = schema_grammar(inner.get("schema"), f"{field}.json_schema.schema")
        case other:
            raise wrong(f"{field}.type", other, _RESPONSE_TYPES)
    return ReadConstraint(Constraint(field, grammar), ignored)


def _structured(value: object, field: str) -> ReadConstraint:
    """vLLM's object: one of its constraints, beside options."""
    fields = as_object(value, field)
    ignored = check_fields(fields, STRUCTURED_FIELDS, f"{field}.")
    name = f"{field}.json_object"
    wants_object = read_bool({name: fields.get("json_object")}, name, default=False)
    grammars = [
        make(fields[name], f"{field}.{name}") for name, make in _STRUCTURED.items() if fields.get(name) is not None
    ]
    grammars += [_ANY_OBJECT] if wants_object else []
    if len(grammars) != 1:
        raise wrong(field, value, "an object with one of json, json_object, regex, choice and grammar")
    return ReadConstraint(Constraint(field, grammars[0]), ignored)


def schema_grammar(value: object, name: str) -> Grammar:
    """An object, or the text of one as vLLM takes it too. The schema `true` allows any value, `false` none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"`{name}` is no JSON: {error}", name) from error
    if value is True:
        value = {}
    if not isinstance(value, dict):
        raise wrong(name, value, "a JSON schema that allows something")
    return Grammar(kind="json_schema", text=msgspec.json.encode(value).decode())


def _choice(value: object, name: str) -> Grammar:
    choices = [as_text(item, f"{name}[{index}]") for index, item in enumerate(as_list(value, name))]
    if not choices:
        raise wrong(name, value, "an array of at least one string")
    return Grammar(kind="choice", text=msgspec.json.encode(choices).decode())


def _regex(value: object, name: str) -> Grammar:
    return Grammar(kind="regex", text=as_text(value, name))


def _grammar(value: object, name: str) -> Grammar:
    return grammar_of(as_text(value, name))


def _plain(make: _Maker) -> _Reader:
    return lambda value, field: ReadConstraint(Constraint(field, make(value, field)))


_STRUCTURED: Final[Mapping[str, _Maker]] = {
    "json": schema_grammar,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}

_READERS: Final[Mapping[str, _Reader]] = {
    "response_format": _response_format,
    "structured_outputs": _structured,
    "guided_json": _plain(schema_grammar),
    "guided_regex": _plain(_regex),
    "guided_choice": _plain(_choice),
    "guided_grammar": _plain(_grammar),
    "grammar": _plain(_grammar),
    "json_schema": _plain(schema_grammar),
}
