"""The text of a call section as its reader sees it: it comes in pieces, and every step waits for what it needs.

All waiting steps are generators: `name = yield from source.until("<")`. Knows no format.
"""

import re
from collections.abc import Generator
from typing import Final, NamedTuple, TypeVar

_T = TypeVar("_T")
Waiting = Generator[None, None, _T]

_SPACE = re.compile(r"\s*")
MAX_NAME_CHARACTERS: Final = 400


class MalformedError(Exception):
    """The text is no call in the format, or has ended before it was one."""


class Taken(NamedTuple):
    """Text, and the marker that stands behind it; None: the text goes on."""

    text: str
    marker: str | None


class Found(NamedTuple):
    """Where a marker stands."""

    end: int
    start: int
    marker: str


class Source:
    """opener: the marker before the text; a start opener is the text's own beginning.

    written: what was read since mark() was called last, as it stands.
    """

    def __init__(self, opener: str = "") -> None:
        self.opener = opener
        self.is_ended = False
        self._text = ""
        self._at = 0
        self._written: list[str] = []

    @property
    def unread(self) -> str:
        """What has come and was not read."""
        return self._text[self._at :]

    @property
    def written(self) -> str:
        """What was read since the last mark."""
        return "".join([*self._written, self._text[: self._at]])

    def put(self, text: str) -> None:
        """More text; the section's driver calls it."""
        if self._at:
            self._written.append(self._text[: self._at])
        self._text = self._text[self._at :] + text
        self._at = 0

    def mark(self) -> None:
        """What was read is settled."""
        self._written = []
        self._text = self._text[self._at :]
        self._at = 0

    def skip(self, count: int) -> None:
        """Reads characters that have come."""
        self._at += count

    def peek(self, count: int = 1) -> Waiting[str]:
        """The next characters, unread; fewer only at the end of the text."""
        while len(self._text) - self._at < count and not self.is_ended:
            yield
        return self._text[self._at : self._at + count]

    def some(self) -> Waiting[str]:
        """All unread text that has come, unread still; at least a character. Raises MalformedError at the end."""
        if not (yield from self.peek()):
            raise MalformedError
        return self.unread

    def skip_space(self) -> Waiting[str]:
        """Reads white space; returns the character behind it, unread, or nothing at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text) or self.is_ended:
                return self._text[self._at : self._at + 1]
            yield

    def accept(self, *texts: str) -> Waiting[str | None]:
        """Reads whichever of the texts comes next, the longest if several fit, and says which; None for none."""
        for text in sorted(texts, key=len, reverse=True):
            count = 1
            while count < len(text) and (yield from self.peek(count)) == text[:count]:
                count += 1
            if (yield from self.peek(count)) == text:
                self._at += len(text)
                return text
        return None

    def expect(self, *texts: str) -> Waiting[str]:
        """As accept; raises MalformedError when none comes."""
        found = yield from self.accept(*texts)
        if found is None:
            raise MalformedError
        return found

    def piece_until(self, *markers: str) -> Waiting[Taken]:
        """Reads text that is certainly before the first marker, and that marker if it has come.

        To be called again while no marker is told. The marker whose last character comes first is found; of those
        that end together, the longest. Raises MalformedError at the end of the text.
        """
        while True:
            found = self._first(markers)
            if found is not None:
                return found
            safe = self._safe_length(markers)
            if safe:
                text = self._text[self._at : self._at + safe]
                self._at += safe
                return Taken(text, None)
            if self.is_ended:
                raise MalformedError
            yield

    def until(self, *markers: str, most: int | None = None) -> Waiting[Taken]:
        """Reads all text up to the first marker, and the marker. most: characters of the text, None for any number.

        Raises MalformedError when there is none, or more text before it.
        """
        parts: list[str] = []
        length = 0
        while True:
            piece = yield from self.piece_until(*markers)
            parts.append(piece.text)
            length += len(piece.text)
            if most is not None and length > most:
                raise MalformedError
            if piece.marker is not None:
                return Taken("".join(parts), piece.marker)

    def name_until(self, *markers: str) -> Waiting[Taken]:
        """As until, of a name and what may stand beside it: a call that has not begun by then is none.

        What is no call is read again from its second character on, which must not be all that a reply has.
        """
        return self.until(*markers, most=MAX_NAME_CHARACTERS)

    def _first(self, markers: tuple[str, ...]) -> Taken | None:
        found = [
            (start + len(text), start, text) for text in markers if (start := self._text.find(text, self._at)) >= 0
        ]
        if not found:
            return None
        _, start, marker = min(found)
        text = self._text[self._at : start]
        self._at = start + len(marker)
        return Taken(text, marker)

    def _find(self, text: str) -> int:
        return self._text.find(text, self._at)

    def _safe_length(self, markers: tuple[str, ...]) -> int:
        """How much of the unread text no marker can claim any more."""
        unread = self.unread
        longest = max(map(len, markers))
        for start in range(max(0, len(unread) - longest + 1), len(unread)):
            if any(marker.startswith(unread[start:]) for marker in markers):
                return start
        return len(unread)
