"""Finds marker strings in text that arrives in pieces; knows no meaning of any marker.

Stop strings are markers today; those of reasoning and tool calls are told apart by their index.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MarkerFound:
    """marker: index in the scanner's markers. after: the text behind it, not yet scanned."""

    marker: int
    after: str


@dataclass(frozen=True, slots=True)
class Scan:
    """before: text that no marker can claim any more, up to the found marker if there is one."""

    before: str
    found: MarkerFound | None = None


def first_start(marker: str, passed: int) -> int:
    """Where a marker begins at the earliest that ends behind so many characters."""
    return max(0, passed - len(marker) + 1)


class MarkerScanner:
    """Looks for several markers at once; where the pieces are cut makes no difference.

    The marker whose last character comes first wins; of those that end together, the longest. So a
    marker is told with its last character and never waits for what might still become a longer one.
    """

    def __init__(self, markers: tuple[str, ...], passable: int = 0) -> None:
        """passable: how many of the first markers a feed may pass over."""
        assert all(markers), "an empty marker is found everywhere"
        self._passable = passable
        self.markers: Final = markers
        self._longest = max(map(len, markers), default=0)
        self._first_letters = frozenset(marker[0] for marker in markers)
        self._held = ""

    @property
    def held_characters(self) -> int:
        """How much is held back."""
        return len(self._held)

    def feed(self, text: str, counted: int | None = None) -> Scan:
        """Scans the next piece; what may be the beginning of a marker is held back.

        counted: of the text so far, in how many last characters a passable marker must end to be found; None: in all.
        """
        text = self._held + text
        end, marker = self._first_end(text, 0 if counted is None else max(0, len(text) - counted))
        if marker is not None:
            self._held = ""
            start = end - len(self.markers[marker])
            return Scan(before=text[:start], found=MarkerFound(marker=marker, after=text[end:]))
        cut = self._start_of_possible(text)
        self._held = text[cut:]
        return Scan(before=text[:cut])

    def finish(self) -> str:
        """The held text: nothing follows that could complete a marker."""
        held, self._held = self._held, ""
        return held

    def _first_end(self, text: str, passed: int) -> tuple[int, int | None]:
        best_end, best = len(text) + 1, None
        for index, marker in enumerate(self.markers):
            start = text.find(marker, first_start(marker, passed) if index < self._passable else 0)
            end = start + len(marker)
            if start < 0 or end > best_end:
                continue
            if best is None or end < best_end or len(marker) > len(self.markers[best]):
                best_end, best = end, index
        return best_end, best

    def _start_of_possible(self, text: str) -> int:
        """Where the longest suffix begins that a marker begins with."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._first_letters:
                suffix = text[start:]
                if any(marker.startswith(suffix) for marker in self.markers):
                    return start
        return len(text)
