"""The grammar of arguments between tags: one after the other as the schema declares them, strings as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from frontend.dialects.base import Tool
from frontend.errors import RequestError
from frontend.lark import Lark
from frontend.parsers.schema_types import types_of
from protocol.errors import ErrorCode

_SHARED: Final = ("$defs", "definitions")
# What only JSON can be held to.
_UNHELD: Final = ("pattern", "minLength", "maxLength", "format")


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """head NAME neck VALUE tail, for each argument. other_neck: before a value that is no string, if it is another."""

    head: str
    neck: str
    tail: str
    other_neck: str | None = None


def tagged_arguments(lark: Lark, name: str, tool: Tool, tags: ArgumentTags) -> None:
    """Adds the rule of a tool's arguments. Raises RequestError for a strict string that no grammar holds here."""
    schema = tool.parameters or {}
    stated = schema.get("required")
    required = cast(list[object], stated) if isinstance(stated, list) else []
    shared = {key: schema[key] for key in _SHARED if key in schema}
    parts: list[str] = []
    for index, (key, described) in enumerate(_fields(schema.get("properties")).items()):
        argument = f"{name}_{index}"
        value = _value(lark, f"{argument}_value", described, shared, tags)
        if value is None:
            _check_held(tool, key, described)
            lark.rule(argument, f"{lark.literal(tags.head + key + tags.neck)} {lark.text_through(tags.tail)}")
        else:
            neck = tags.neck if _is_text(described) else tags.other_neck or tags.neck
            lark.rule(argument, f"{lark.literal(tags.head + key + neck)} {value} {lark.literal(tags.tail)}")
        parts.append(argument if key in required else f"{argument}?")
    lark.rule(name, " ".join(parts))


def _value(lark: Lark, name: str, described: object, shared: Mapping[str, Any], tags: ArgumentTags) -> str | None:
    """An expression for what is one of a few strings, or JSON; None for text."""
    fields = _fields(described)
    choices: list[Any] = fields["enum"] if isinstance(fields.get("enum"), list) else []
    choices = [fields["const"]] if "const" in fields else choices
    if choices and all(isinstance(choice, str) and choice for choice in choices):
        return f"({' | '.join(lark.literal(choice) for choice in choices)})"
    if _is_text(described):
        return None
    lark.json(name, {**fields, **shared})
    return name


def _is_text(described: object) -> bool:
    """Also of a type that is not known, or may be something else, too: what it reads as is told."""
    types = types_of(described)
    return not types or "string" in types


def _fields(schema: object) -> Mapping[str, Any]:
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else {}


def _check_held(tool: Tool, key: str, described: object) -> None:
    fields = _fields(described)
    unheld = next((name for name in _UNHELD if name in fields), None)
    if tool.is_strict and unheld is not None:
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`tools`: {tool.name}.{key} has a {unheld}, which cannot be held in this model's call format: leave it, "
            "or strict, out",
            "tools",
        )
