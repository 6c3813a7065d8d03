"""Gemma's calls: `call:name{key:value,…}` with bare keys, told as JSON while they come.

Shared by the formats that write so; what quotes a string is the format's. Nothing is escaped inside of a string.
"""

import re
from typing import Final

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, Reading
from frontend.parsers.json_calls import json_string
from frontend.parsers.json_scan import escaped
from frontend.parsers.schema_types import typed_json
from frontend.parsers.source import MalformedError, Source

MAX_DEPTH: Final = 60
_NAME: Final = re.compile(r"[\w.-]+")
_SCALAR_END: Final = re.compile(r"[,}\]]")
# Numbers stay as they are written.
_SCALARS: Final = frozenset({"null", "number", "boolean"})


def gemma_call(source: Source, quote: str) -> Reading[None]:
    """One call, from `call:` to its closing brace. It is told once its first argument has a name."""
    yield from source.skip_space()
    yield from source.expect("call:")
    name = (yield from source.name_until("{")).text.strip()
    if not _NAME.fullmatch(name):
        raise MalformedError
    if (yield from source.skip_space()) == "}":
        yield CallBegun(name)
    yield from _fields(source, quote, CallBegun(name))
    yield CallEnded()


def _fields(source: Source, quote: str, begun: CallBegun | None = None, depth: int = 0) -> Reading[None]:
    """`key:value,…}`, from behind the brace. begun: told with the first key."""
    if (yield from source.skip_space()) == "}":
        source.skip(1)
        yield ArgumentsText("{}")
        return
    before = "{"
    while before:
        key = yield from _key(source, quote)
        if begun is not None:
            yield begun
            begun = None
        yield ArgumentsText(f'{before}"{escaped(key)}": ')
        yield from _value(source, quote, depth)
        before = ", " if (yield from _has_more(source, "}")) else ""
    yield ArgumentsText("}")


def _key(source: Source, quote: str) -> Reading[str]:
    yield from source.skip_space()
    if (yield from source.accept(quote)) is not None:
        key = (yield from source.name_until(quote)).text
    elif (yield from source.peek()) == '"':
        key = yield from json_string(source)
    else:
        taken = yield from source.name_until(":", ",", "{", "}")
        if taken.marker != ":" or not taken.text.strip():
            raise MalformedError
        return taken.text.strip()
    yield from source.skip_space()
    yield from source.expect(":")
    return key


def _has_more(source: Source, closer: str) -> Reading[bool]:
    if (yield from source.skip_space()) == ",":
        source.skip(1)
        if (yield from source.skip_space()) != closer:
            return True
    yield from source.expect(closer)
    return False


def _value(source: Source, quote: str, depth: int) -> Reading[None]:
    if depth > MAX_DEPTH:
        raise MalformedError
    yield from source.skip_space()
    opener = yield from source.accept(quote, "{", "[")
    if opener == quote:
        yield from _string(source, quote)
    elif opener == "{":
        yield from _fields(source, quote, depth=depth + 1)
    elif opener == "[":
        yield from _items(source, quote, depth + 1)
    elif (yield from source.peek()) == '"':
        yield ArgumentsText(f'"{escaped((yield from json_string(source)))}"')
    else:
        yield ArgumentsText(typed_json((yield from _scalar(source)), _SCALARS))


def _string(source: Source, quote: str) -> Reading[None]:
    yield ArgumentsText('"')
    while True:
        piece = yield from source.piece_until(quote)
        yield ArgumentsText(escaped(piece.text))
        if piece.marker is not None:
            break
    yield ArgumentsText('"')


def _items(source: Source, quote: str, depth: int) -> Reading[None]:
    yield ArgumentsText("[")
    has_more = (yield from source.skip_space()) != "]"
    if not has_more:
        source.skip(1)
    while has_more:
        yield from _value(source, quote, depth)
        has_more = yield from _has_more(source, "]")
        if has_more:
            yield ArgumentsText(", ")
    yield ArgumentsText("]")


def _scalar(source: Source) -> Reading[str]:
    """Reads up to what ends a value without quotes, which stays unread."""
    parts: list[str] = []
    while True:
        text = yield from source.some()
        found = _SCALAR_END.search(text)
        end = len(text) if found is None else found.start()
        source.skip(end)
        parts.append(text[:end])
        if found is not None:
            return "".join(parts).strip()
