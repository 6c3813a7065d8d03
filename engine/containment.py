"""What a fault of a model's code, of a library or of the device costs: those rows that it belongs to, nothing else.

Owns the one broad except of the engine's work; whose fault it is, its callers say. Where nothing but faults comes of
the device any more, that is nobody's own: then the engine has to end.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final

from engine.batch import Group
from engine.errors import DeviceLost
from engine.retire import Roster
from engine.row import Row
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

# Of an error's text in a row's last word: a library may put a whole program into one.
_SHOWN_LENGTH: Final = 600
# In a row, without a step or a chunk in between, before the device itself is doubted.
FAULTS_BEFORE_DOUBT: Final = 3


class Containment:
    """One per loop. on_fault: is told of each fault, with the rows that it may belong to, before anything else."""

    def __init__(self, roster: Roster, on_fault: Callable[[Sequence[Row]], None]) -> None:
        self._roster = roster
        self._on_fault = on_fault
        self._faults_in_a_row = 0
        self._retrying: set[str] = set()

    @contextmanager
    def ending(self, rows: Sequence[Row], code: ErrorCode) -> Iterator[None]:
        """A fault in here ends these rows, those that stand in the sequence by then."""

        def end(why: str) -> None:
            now = monotonic()
            for row in list(rows):
                self._roster.fail(row, code, why, now)

        with self.handing(rows, end):
            yield

    @contextmanager
    def handing(self, rows: Sequence[Row], over: Callable[[str], None]) -> Iterator[None]:
        """A fault in here is logged with these rows, and its words go to `over`, which says what becomes of them."""

        def hand(why: str) -> None:
            self._faults_in_a_row += 1
            self._on_fault(rows)
            over(why)

        with self._catching("rows.failed", hand, rows):
            yield

    @contextmanager
    def retrying(self, event: str) -> Iterator[None]:
        """What nobody's answer hangs on and is tried again soon: a fault is logged once, until it has gone well."""
        is_new = event not in self._retrying
        with self._catching(event, lambda _why: self._retrying.add(event), is_logged=is_new):
            yield
            self._retrying.discard(event)

    @contextmanager
    def _catching(
        self, event: str, over: Callable[[str], None], rows: Sequence[Row] = (), *, is_logged: bool = True
    ) -> Iterator[None]:
        """over: is told what was raised, in words that any frame takes. is_logged: with all that led to it."""
        try:
            yield
        except Exception as error:  # whatever a model's code or the device raises
            if is_logged:
                log.exception(event, extra={"ids": [row.key.id for row in rows]})
            why = f"{type(error).__name__}: {error}"[:_SHOWN_LENGTH]
            over(why.encode("utf-8", "backslashreplace").decode())

    def device_worked(self) -> None:
        """A step or a chunk was computed: what failed before it was not for good."""
        self._faults_in_a_row = 0

    @property
    def is_device_in_doubt(self) -> bool:
        """Whether so many faults have followed each other that check_device() should be asked."""
        return self._faults_in_a_row >= FAULTS_BEFORE_DOUBT

    def check_device(self, forward: Callable[[], None]) -> None:
        """Raises DeviceLost if this forward, which owes nothing to any row, fails too.

        Otherwise rows failed that would fail anywhere: a client that tries such a one again and again ends nobody.
        """
        found: list[str] = []
        with self._catching("device.check_failed", found.append):
            forward()
        if found:
            raise DeviceLost(
                f"{self._faults_in_a_row} faults in a row, and a forward of one token fails as well: {found[0]}"
            )
        self._faults_in_a_row = 0

    def groups_left(self, groups: list[Group], ended: set[Row], code: ErrorCode) -> list[Group]:
        """The groups that have rows without these. One that cannot let go of a row ends with all of its rows."""
        left: list[Group] = []
        for group in groups:
            with self.ending(group.rows, code):
                group.leave(ended)
                left += [group] if group.rows else []
        return left
