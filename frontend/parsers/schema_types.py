"""What JSON untyped text means, by the JSON schema of the argument: `5` is 5 for an integer and "5" for a string.

Pure functions; knows no format.
"""

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from frontend.parsers.json_scan import JsonScanner, escaped

Types = frozenset[str]

UNKNOWN: Final[Types] = frozenset()
TEXT: Final[Types] = frozenset({"string"})
# Of a text without white space around it, and of what it is as JSON, if it is.
_Reader = Callable[[str, str | None], str | None]
_KNOWN: Final = ("null", "integer", "number", "boolean", "object", "array", "string")
_SPELLINGS: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object"}
_TYPES_OF_VALUES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_MAX_NESTING: Final = 16
# Python reads it at once, and nothing else goes on meanwhile: this takes about 10 ms.
_MOST_PYTHON_CHARACTERS: Final = 20_000
# Longer numbers than a float can hold are kept as they are written.
_SAFE_INTEGER: Final = 2.0**53


def types_of(schema: object, depth: int = 0) -> Types:
    """The JSON types that a schema allows; UNKNOWN when it does not say, or refers to elsewhere."""
    if not isinstance(schema, dict) or depth > _MAX_NESTING:
        return UNKNOWN
    fields = cast(dict[str, Any], schema)
    stated = fields.get("type")
    if stated is not None:
        names = cast(list[object], stated) if isinstance(stated, list) else [stated]
        spelled = (_SPELLINGS.get(str(name).lower(), str(name).lower()) for name in names)
        return frozenset(name for name in spelled if name in _KNOWN)
    values: list[Any] = fields["enum"] if isinstance(fields.get("enum"), list) else []
    values = [fields["const"]] if "const" in fields else values
    if values:
        return frozenset(_type_of_value(value) for value in values)
    return _types_of_any(fields, depth)


def _types_of_any(fields: Mapping[str, Any], depth: int) -> Types:
    for name in ("anyOf", "oneOf"):
        if isinstance(fields.get(name), list):
            each = [types_of(option, depth + 1) for option in fields[name]]
            return frozenset[str]().union(*each) if all(each) else UNKNOWN
    if isinstance(fields.get("allOf"), list):
        return next((found for part in fields["allOf"] if (found := types_of(part, depth + 1))), UNKNOWN)
    if "properties" in fields:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in fields else UNKNOWN


class JsonText:
    """Whether a text is one JSON value, looked for while it comes; white space around it does not count."""

    def __init__(self) -> None:
        self._scanner = JsonScanner()
        self._parts: list[str] = []
        self._held = ""
        self._is_begun = False

    def feed(self, text: str, *, is_last: bool = False) -> None:
        """The next piece."""
        if not self._is_begun:
            text = text.lstrip()
            self._is_begun = bool(text)
        scanner = self._scanner
        if not scanner.is_done and not scanner.is_broken and (self._is_begun or is_last):
            text = self._held + text
            self._parts.append(scanner.feed(text, is_last=is_last))
            text = self._held = text[scanner.read :]
        if scanner.is_done and text.strip():
            scanner.is_broken = True

    def whole(self) -> str | None:
        """The value as valid JSON, after the last piece; None when it is none."""
        self.feed("", is_last=True)
        return None if self._scanner.is_broken else "".join(self._parts)


def typed_json(text: str, types: Types, scanned: JsonText | None = None) -> str:
    """The text's value as JSON: of the first type it fits, a string if it fits none.

    Of a type that is not known: what it reads as, a string otherwise. scanned: what was fed with the text.
    """
    if scanned is None:
        scanned = JsonText()
        scanned.feed(text)
    plain, value = text.strip(), scanned.whole()
    wanted = _KNOWN if not types else tuple(name for name in _KNOWN if name in types)
    for name in wanted:
        reader = _READERS.get(name)
        found = None if reader is None else reader(plain, value)
        if found is not None:
            return found
    return f'"{escaped(text)}"'


def _type_of_value(value: object) -> str:
    return "null" if value is None else _TYPES_OF_VALUES.get(type(value), "string")


def _null(text: str, value: str | None) -> str | None:
    del value
    return "null" if text in ("null", "None", "nil") else None


def _integer(text: str, value: str | None) -> str | None:
    number = _number(text, value)
    if number is None or number.lstrip("-").isdigit():
        return number
    size = float(number)
    return str(int(size)) if size.is_integer() and abs(size) <= _SAFE_INTEGER else None


def _number(text: str, value: str | None) -> str | None:
    """As it is written, if that is JSON; `1.` and `+1` are numbers, too."""
    if value is not None:
        return text if text[0] in "-0123456789" else None
    if not text or text[-1] not in "0123456789." or "_" in text:
        return None
    try:
        size = float(text)
    except ValueError:
        return None
    return msgspec.json.encode(size).decode() if math.isfinite(size) else None


def _boolean(text: str, value: str | None) -> str | None:
    del value
    lowered = text.lower()
    return lowered if lowered in ("true", "false") else None


def _container(opener: str) -> _Reader:
    return lambda text, value: (value or _python(text)) if text.startswith(opener) else None


def _python(text: str) -> str | None:
    """Of a Python literal, which models write in place of JSON."""
    if len(text) > _MOST_PYTHON_CHARACTERS:
        return None
    try:
        return msgspec.json.encode(ast.literal_eval(text)).decode()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError, msgspec.MsgspecError):
        return None


_READERS: Final[Mapping[str, _Reader]] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": _container("{"),
    "array": _container("["),
}
