"""Text that waits to be read, in short pieces: what comes back is read before all else.

A stretch that turns out to be no call may be long and full of what could begin one; each would copy all behind it.
"""

from typing import Final

PIECE_CHARACTERS: Final = 256


class Backlog:
    """Texts, the last one put in first."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        # Of the text at the same place: how much of it was read.
        self._read: list[int] = []

    @property
    def characters(self) -> int:
        """How much waits."""
        return sum(map(len, self._texts)) - sum(self._read)

    def piece_of(self, text: str) -> str:
        """The beginning of a text; the rest waits."""
        if len(text) <= PIECE_CHARACTERS:
            return text
        self._texts.append(text)
        self._read.append(0)
        return self.next_piece()

    def next_piece(self) -> str:
        """What is to be read next; nothing when nothing waits."""
        if not self._texts:
            return ""
        start = self._read[-1]
        self._read[-1] = end = start + PIECE_CHARACTERS
        text = self._texts[-1]
        if end >= len(text):
            self._texts.pop()
            self._read.pop()
        return text[start:end]
