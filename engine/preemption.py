"""Who gives way when memory runs out: kept prefixes, padding, then the youngest row of the lowest priority.

A row that gives way goes on later as if nothing had been: its stream stays open. The oldest one never does.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from engine import prefill
from engine.admission import Admission
from engine.batch import Batch, Group
from engine.containment import Containment
from engine.ledger import Ledger
from engine.parts import LoopParts
from engine.prefilling import Prefilling
from engine.retire import Roster
from engine.row import Row
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)


class Places(NamedTuple):
    """Where rows are. read: takes what a group has sampled and nobody has read, and removes who ends by it."""

    admission: Admission
    prefilling: Prefilling
    batch: Batch
    roster: Roster
    faults: Containment
    read: Callable[[Group], None]


class Preemption:
    """One per loop. `start_rows` lets rows in, `make_room` lets them grow in the next turn."""

    def __init__(self, parts: LoopParts, ledger: Ledger, places: Places) -> None:
        self._ledger = ledger
        self._prefixes = parts.prefixes
        self._speculator = parts.speculator
        self._admission = places.admission
        self._prefilling = places.prefilling
        self._batch = places.batch
        self._roster = places.roster
        self._faults = places.faults
        self._read = places.read
        # Rows that gave way and have no place yet: until then nobody starts who would make others give way again.
        self._returning: set[Row] = set()
        # Rows that the queue's cap would let start.
        self.kept_waiting_rows = 0

    def start_rows(self) -> None:
        """From the queue, in its order, as many as have room; nobody passes the first one."""
        self.kept_waiting_rows = 0
        self._returning = {row for row in self._returning if row.ending is None}
        while self._admission.can_admit(self._ledger.live_rows):
            family = self._admission.next_family()
            count = self._ledger.fitting(family, is_tight=bool(self._returning))
            if not count:
                self.kept_waiting_rows = self._admission.startable_rows
                return
            self._admission.admit(family[:count])
            for row in family[:count]:
                self._prefilling.add(row)
            self._returning.difference_update(family[:count])
            if self._speculator is not None and not self._ledger.may_guess:
                self._speculator.drop()
            self._prefixes.live_rows_take(self._ledger.size_bytes)

    def make_room(self) -> None:
        """Before the next turn, in which rows may grow: what lives may take no more than the budget."""
        if self._is_within():
            return
        if self._speculator is not None and self._ledger.live_rows > 1:
            self._speculator.drop()
        with self._faults.handing([*self._batch], lambda _why: None):
            self._settle()
        if self._is_within():
            return
        with self._faults.handing([*self._batch], lambda _why: None):
            if self._batch.tighten():
                self._settle()
        while not self._is_within() and (row := self._victim()) is not None:
            self._preempt(row)

    def _is_within(self) -> bool:
        needed_bytes = self._ledger.size_bytes
        self._prefixes.live_rows_take(needed_bytes)
        return needed_bytes <= self._ledger.budget_bytes

    def _settle(self) -> None:
        """What rows that have moved left behind is freed."""
        prefill.settle(self._batch.groups)
        self._batch.settled()

    def _victim(self) -> Row | None:
        """The youngest row of the lowest priority; None when it is the only one."""
        ready = (row for group in self._prefilling.ready for row in group.rows)
        live = {*self._batch, *ready, *self._prefilling.rows}
        ranked = sorted(
            (row for row in self._roster.rows.values() if row in live), key=lambda row: -row.submit.priority
        )
        return ranked[-1] if len(ranked) > 1 else None

    def _preempt(self, row: Row) -> None:
        """It leaves with all that it has said; its caches are kept as a prefix where there is room."""
        group = self._group_of(row)
        if group is not None:
            self._read(group)
            if row.ending is not None:
                return
        with self._faults.ending([row], ErrorCode.DECODE_FAILED):
            self._take_out(row)
            row.start_over()
            self._admission.put_back(row)
            self._returning.add(row)
            self._roster.tally.preemptions += 1
            log.info("row.preempted", extra={"id": row.key.id, "tokens": len(row.to_prefill), "times": row.preemptions})

    def _group_of(self, row: Row) -> Group | None:
        return next((group for group in self._batch.groups if row in group.rows), None)

    def _take_out(self, row: Row) -> None:
        """Layer by layer, so that nothing is there twice. Who waited for what it prefills looks anew."""
        caches, tokens = row.caches, row.prefilled
        group = self._group_of(row)
        if group is not None:
            alone = group.part({row})
            if alone is group:
                self._batch.groups = [other for other in self._batch.groups if other is not group]
            else:
                group.leave([row])
                prefill.settle([alone, group])
            caches, tokens = alone.caches, alone.layout.width
        self._prefilling.remove({row})
        self._batch.settled()
        row.caches = None
        if caches:
            self._prefixes.give_way(row, caches, tokens, self._ledger.size_bytes)
