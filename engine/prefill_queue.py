"""Rows that were admitted and are to prefill. The choices of one request share a prompt: it is prefilled once."""

from collections import deque
from collections.abc import Iterator

from engine.priority import queue_by_priority
from engine.row import Row


class PrefillQueue:
    """By priority, then first in, first out; siblings are rows of one client's request with the same tokens."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def add(self, row: Row) -> None:
        """A row that was admitted."""
        queue_by_priority(self._rows, row)

    def remove(self, ended: set[Row]) -> None:
        """Forgets rows that ended. The siblings of one that was half way begin again."""
        self._rows = deque(row for row in self._rows if row not in ended)

    def leaders(self) -> Iterator[Row]:
        """The rows in order, without those whose prompt, or long beginning of it, one before them brings along."""
        # By what siblings share for sure: who is compared with every leader costs milliseconds at hundreds of rows.
        led: dict[tuple[bytes, str], list[Row]] = {}
        for row in self._rows:
            if row.prefix.is_waiting:
                continue
            before = led.setdefault((row.key.client, row.submit.group), [])
            if not any(row.is_sibling_of(leader) for leader in before):
                before.append(row)
                yield row

    def family(self, leader: Row) -> list[Row]:
        """The row and its siblings; the row comes first."""
        return [row for row in self._rows if row is leader or row.is_sibling_of(leader)]

    def take(self, leader: Row) -> list[Row]:
        """Removes the row that is through, and its siblings; the row comes first."""
        taken = self.family(leader)
        self.remove(set(taken))
        return taken
