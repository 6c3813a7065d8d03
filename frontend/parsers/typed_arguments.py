"""Arguments that a format writes as untyped text between markers, told as one JSON object while they come.

Text for a string is told piece by piece; text for anything else waits until it can be read. The markers are the
format's.
"""

from typing import Literal

from frontend.dialects.base import Tool
from frontend.parsers.base import ArgumentsText, Reading, schema_of
from frontend.parsers.json_scan import escaped
from frontend.parsers.schema_types import TEXT, JsonText, Types, typed_json, types_of
from frontend.parsers.source import Source
from frontend.text.held_space import HeldSpace

# What is cut from a value's ends: all white space, one line break at each, or nothing.
Trim = Literal["space", "line", "nothing"]


class TypedArguments:
    """One call's arguments, in the order they come. trim: of each value."""

    def __init__(self, tool: Tool, trim: Trim) -> None:
        self._schemas = schema_of(tool)
        self._trim: Trim = trim
        self._count = 0

    def value(self, source: Source, key: str, *ends: str, stated: Types | None = None) -> Reading[str]:
        """Tells the value that comes next, up to one of the ends; returns which. stated: types that the text says."""
        types = self.types(key) if stated is None else stated
        if types == TEXT:
            yield self._begun(key, '"')
            end = yield from self._streamed_text(source, ends)
            yield ArgumentsText('"')
            return end
        parts: list[str] = []
        scanned = JsonText()
        while True:
            piece = yield from source.piece_until(*ends)
            parts.append(piece.text)
            scanned.feed(piece.text)
            if piece.marker is not None:
                break
        yield self._begun(key, typed_json(trimmed("".join(parts), self._trim), types, scanned))
        return piece.marker

    def types(self, key: str) -> Types:
        """What the tool's schema says of an argument."""
        return types_of(self._schemas.get(key))

    def ended(self) -> ArgumentsText:
        """Closes the object."""
        return ArgumentsText("}" if self._count else "{}")

    def _begun(self, key: str, value: str) -> ArgumentsText:
        head = ", " if self._count else "{"
        self._count += 1
        return ArgumentsText(f'{head}"{escaped(key)}": {value}')

    def _streamed_text(self, source: Source, ends: tuple[str, ...]) -> Reading[str]:
        trimmer = _Trimmer(self._trim)
        while True:
            piece = yield from source.piece_until(*ends)
            yield ArgumentsText(escaped(trimmer.feed(piece.text)))
            if piece.marker is not None:
                return piece.marker


def trimmed(text: str, trim: Trim) -> str:
    """A value without what a format sets around it."""
    match trim:
        case "space":
            return text.strip()
        case "line":
            return text.removeprefix("\n").removesuffix("\n")
        case "nothing":
            return text


class _Trimmer:
    """trimmed, of text that comes in pieces: what may be cut from the end is held back."""

    def __init__(self, trim: Trim) -> None:
        self._trim = trim
        self._is_begun = False
        self._held = HeldSpace()

    def feed(self, text: str) -> str:
        """What is certainly inside; what is held at the end is cut."""
        if self._trim == "nothing" or not text:
            return text
        if not self._is_begun:
            text = text.lstrip() if self._trim == "space" else text.removeprefix("\n")
            self._is_begun = self._trim == "line" or bool(text)
        inside = text.rstrip() if self._trim == "space" else text.removesuffix("\n")
        told = self._held.take() + inside if inside or (text and self._trim == "line") else ""
        self._held.add(text[len(inside) :])
        return told
