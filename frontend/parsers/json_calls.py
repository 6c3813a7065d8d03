"""Calls written as JSON: `{"name": …, "arguments": {…}}` and pieces of it, streamed as they come.

Shared by the formats that write JSON; their markers are their own.
"""

from typing import Any, Final

import msgspec

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, Reading
from frontend.parsers.json_scan import JsonScanner
from frontend.parsers.source import MAX_NAME_CHARACTERS, MalformedError, Source

NAME_KEYS: Final = ("name",)
ARGUMENT_KEYS: Final = ("arguments", "parameters")


def json_value(source: Source) -> Reading[str]:
    """Reads one JSON value, whole."""
    scanner = JsonScanner()
    parts: list[str] = []
    while not scanner.is_done:
        parts.append((yield from _scanned(source, scanner)))
        if scanner.is_broken:
            raise MalformedError
    return "".join(parts)


def json_string(source: Source) -> Reading[str]:
    """Reads one JSON string; its text."""
    if (yield from source.peek()) != '"':
        raise MalformedError
    return decoded((yield from json_value(source)), str)


def decoded(text: str, kind: type[Any]) -> Any:
    """The value of JSON text. Raises MalformedError when it is of another type."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise MalformedError from error


def streamed_call(source: Source, name: str, call_id: str | None = None) -> Reading[None]:
    """One call whose name, and perhaps id, is known: its arguments come next. It is told once they begin."""
    if (yield from source.skip_space()) not in ("{", '"', "n"):
        raise MalformedError
    if source.unread.startswith("{"):
        yield CallBegun(name, call_id)
        yield from _streamed_object(source)
    else:
        arguments = _object_of((yield from json_value(source)))
        yield CallBegun(name, call_id)
        yield ArgumentsText(arguments)
    yield CallEnded()


def call_object(
    source: Source, name_keys: tuple[str, ...] = NAME_KEYS, argument_keys: tuple[str, ...] = ARGUMENT_KEYS
) -> Reading[None]:
    """One object with a call's name and arguments; further keys are passed over.

    Arguments that come before the name are told once it is known; without any they are empty. An object that is
    not closed behind its arguments counts as closed.
    """
    yield from source.skip_space()
    yield from source.expect("{")
    name: str | None = None
    arguments: str | None = None
    is_told = False
    has_more = (yield from source.skip_space()) != "}"
    while has_more:
        key = yield from _key(source)
        if key in name_keys and name is None:
            name = yield from json_string(source)
        elif key in argument_keys and name is not None and arguments is None and not is_told:
            yield from streamed_call(source, name)
            is_told = True
        elif key in argument_keys and not is_told:
            arguments = _object_of((yield from json_value(source)))
        else:
            yield from json_value(source)
        has_more = (yield from source.skip_space()) == ","
        source.skip(int(has_more))
    yield from _closed(source, is_told)
    if not is_told:
        yield from _told(name, arguments or "{}")


def has_first_key(source: Source, keys: tuple[str, ...]) -> Reading[bool]:
    """Whether an object with one of these as its first key comes next; reads nothing of it."""
    longest = max(map(len, keys)) + len('""')
    count = 1
    while True:
        text = yield from source.peek(count)
        behind = text.removeprefix("{").lstrip()
        if not text.startswith("{") or len(text) < count or count > MAX_NAME_CHARACTERS:
            return False
        if len(behind) >= longest or behind.count('"') > 1:
            return behind.startswith(tuple(f'"{key}"' for key in keys))
        if behind and not any(f'"{key}"'.startswith(behind) for key in keys):
            return False
        count += 1


def _closed(source: Source, is_told: bool) -> Reading[None]:
    if (yield from source.accept("}")) is None and not is_told:
        raise MalformedError


def _told(name: str | None, arguments: str) -> Reading[None]:
    if name is None:
        raise MalformedError
    yield CallBegun(name)
    yield ArgumentsText(arguments)
    yield CallEnded()


def _key(source: Source) -> Reading[str]:
    yield from source.skip_space()
    key = yield from json_string(source)
    yield from source.skip_space()
    yield from source.expect(":")
    yield from source.skip_space()
    return key


def _streamed_object(source: Source) -> Reading[None]:
    scanner = JsonScanner()
    while not scanner.is_done:
        yield ArgumentsText((yield from _scanned(source, scanner)))
        if scanner.is_broken:
            raise MalformedError


def _scanned(source: Source, scanner: JsonScanner) -> Reading[str]:
    """What comes next of a value; waits for more than what the scanner has left over."""
    yield from source.peek(len(source.unread) + 1 if scanner.is_starved else 1)
    piece = scanner.feed(source.unread, is_last=source.is_ended)
    source.skip(scanner.read)
    return piece


def _object_of(text: str) -> str:
    """JSON text of an object: as it is, null for none, or the text in a string."""
    if text.startswith('"'):
        scanner = JsonScanner()
        inner = decoded(text, str).strip()
        text = scanner.feed(inner, is_last=True)
        if not scanner.is_done or scanner.read != len(inner):
            raise MalformedError
    if text == "null":
        return "{}"
    if not text.startswith("{"):
        raise MalformedError
    return text
