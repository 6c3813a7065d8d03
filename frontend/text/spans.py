"""Which characters of a choice's text each of its tokens has made, and so when a token has been told.

Counts only: knows neither the text nor the tokens.
"""

from collections import deque
from typing import NamedTuple


class _Span(NamedTuple):
    """Tokens that became text together: the last of a character's bytes brings the text of all of them."""

    tokens: int
    start: int
    end: int


class TokenSpans:
    """Tokens in, with the number of characters each completed; out, where the told ones begin. In characters."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque()
        self._silent_tokens = 0
        self._end = 0

    def add(self, characters: int) -> None:
        """The next token, and what it completed; a token without text of its own belongs to the next that has some."""
        self._silent_tokens += 1
        if characters:
            self._close(characters)

    def finish(self, characters: int) -> None:
        """No token follows: the silent ones have what text was held, which may be none."""
        if self._silent_tokens:
            self._close(characters)
        else:
            self._end += characters

    def told(self, characters: int) -> tuple[int, ...]:
        """The beginnings of all tokens, not yet returned, whose text lies within these first characters."""
        starts: list[int] = []
        while self._spans and self._spans[0].end <= characters:
            starts += self._next_starts()
        return tuple(starts)

    def all_starts(self) -> tuple[int, ...]:
        """The same for all tokens, after the last."""
        return self.told(self._end)

    def cut(self, characters: int) -> tuple[int, ...]:
        """The same when the text ends here: tokens with any text before the cut; the others are never told."""
        starts: list[int] = []
        while self._spans and self._spans[0].start < characters:
            starts += self._next_starts()
        self._spans.clear()
        self._silent_tokens = 0
        return tuple(starts)

    def _close(self, characters: int) -> None:
        self._spans.append(_Span(self._silent_tokens, self._end, self._end + characters))
        self._silent_tokens = 0
        self._end += characters

    def _next_starts(self) -> list[int]:
        span = self._spans.popleft()
        return [span.start] * span.tokens
