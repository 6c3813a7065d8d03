"""Text that waits to be read, in short pieces: what comes back is read before all else.

A stretch that turns out to be no call may be long and full of what could begin one; each would copy all behind it.
"""

from typing import Final

PIECE_CHARACTERS: Final = 256


class Backlog:
    """Texts, the last one put in first. characters: how much waits."""

    def __init__(self) -> None:
        self.characters = 0
        self._texts: list[str] = []
        # Of the text at the same place: how much of it was read.
        self._read: list[int] = []

    def piece_of(self, text: str) -> str:
        """The beginning of a text; the rest waits."""
        if len(text) <= PIECE_CHARACTERS:
            return text
        self._texts.append(text)
        self._read.append(0)
        self.characters += len(text)
        return self.next_piece()

    def next_piece(self) -> str:
        """What is to be read next; nothing when nothing waits."""
        if not self._texts:
            return ""
        start = self._read[-1]
        text = self._texts[-1]
        piece = text[start : start + PIECE_CHARACTERS]
        self._read[-1] += len(piece)
        self.characters -= len(piece)
        if self._read[-1] == len(text):
            self._texts.pop()
            self._read.pop()
        return piece
