"""Rows on their way into the batch: their prompts are computed chunk by chunk, then they are ready to join.

Owns the rows' caches meanwhile and the ready groups. Whose turn it is says prefill_order.py; what runs between two
chunks is the loop's.
"""

import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

from mlx_lm.models.cache import make_prompt_cache

from engine import prefill
from engine.batch import Batch, Group
from engine.containment import Containment
from engine.gap import Gap
from engine.memory import Allocator
from engine.parts import LoopParts
from engine.prefill_order import PrefillOrder, Turn
from engine.prefill_queue import PrefillQueue
from engine.retire import Roster
from engine.row import Row
from engine.sampling.masks import GrammarMasks
from protocol.errors import ErrorCode

# How often a row says how far its prompt is computed.
PROGRESS_EVERY_S: Final = 1.0


class Prefilling:
    """One per loop. rows: whose prompts are not computed yet; ready: groups that join before the next step."""

    def __init__(
        self, parts: LoopParts, roster: Roster, allocator: Allocator, masks: GrammarMasks, faults: Containment
    ) -> None:
        self._parts = parts
        self._roster = roster
        self._allocator = allocator
        self._masks = masks
        self._faults = faults
        self._prefixes = parts.prefixes
        self._kinds = parts.cache_plan.kinds(parts.model)
        self._order = PrefillOrder(parts.chunk_tokens)
        self.rows = PrefillQueue()
        self.ready: list[Group] = []

    @property
    def live_rows(self) -> int:
        """Rows that were admitted and do not decode yet."""
        return len(self.rows) + sum(len(group.rows) for group in self.ready)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of these rows' caches."""
        half_way = sum(cache.nbytes for row in self.rows for cache in row.caches or ())
        return half_way + sum(group.allocated_bytes for group in self.ready)

    def not_begun(self) -> Iterator[Row]:
        """Rows of whose prompts nothing is computed yet, nor is being computed."""
        return (row for row in self.rows if row.prefill_began_at is None)

    def add(self, row: Row) -> None:
        """A row that was admitted."""
        self.rows.add(row)
        self._expect(row)

    def remove(self, ended: set[Row]) -> None:
        """Forgets rows that ended; who waited for what one of them computes looks anew."""
        self.rows.remove(ended)
        ready_rows = sum(len(group.rows) for group in self.ready)
        self.ready = self._faults.groups_left(self.ready, ended, ErrorCode.PREFILL_FAILED)
        if sum(len(group.rows) for group in self.ready) < ready_rows:
            # What they held with those rows would stay until they decode.
            with self._faults.ending([row for group in self.ready for row in group.rows], ErrorCode.PREFILL_FAILED):
                prefill.settle(self.ready)
        for row in self.rows:
            if row.prefix.leader in ended and not row.is_half_way:
                self._expect(row)

    def _expect(self, row: Row) -> None:
        with self._faults.ending([row], ErrorCode.PREFILL_FAILED):
            self._prefixes.expect(row, takewhile(lambda before: before is not row, self.rows))

    def take_ready(self) -> list[Group]:
        """Hands over the groups that join now."""
        ready, self.ready = self.ready, []
        return ready

    def next_turn(self, gap: Gap, *, has_batch: bool) -> Turn | None:
        """Whose chunk may run before the next step, if one may. has_batch: rows decode already."""
        if not len(self.rows):
            return None
        turn = self._order.turn(list(self.rows.leaders()))
        # Rows that are ready would have their first tokens at once: only short prompts may come before them.
        is_step_due = bool(self.ready) and not has_batch and gap.is_long(turn.row)
        return None if is_step_due or gap.is_spent(turn.row, has_batch) else turn

    def advance(self, turn: Turn, gap: Gap, read_beside: Callable[[], None], batch: Batch) -> None:
        """Runs this chunk. read_beside: called while the device works on it. batch: what decodes."""
        has_batch = len(batch) > 0
        rows = self._rows_of(turn, gap, batch)
        if not rows:
            return
        is_waited_for = has_batch or bool(self.ready)
        tokens = 0
        if len(rows) > 1:
            with self._faults.handing(rows, lambda _why: _part(rows)):
                tokens = self._forward_together(rows, read_beside)
        else:
            with self._faults.ending(rows, ErrorCode.PREFILL_FAILED):
                tokens = self._forward_chunk(rows[0], read_beside, has_batch=has_batch)
        self._order.charge(turn, tokens)
        if is_waited_for:
            gap.charge(tokens)

    def _rows_of(self, turn: Turn, gap: Gap, batch: Batch) -> list[Row]:
        """The row whose turn it is, or the short ones that go as one chunk with it; none if it failed."""
        now = time.monotonic()
        if not self._begin(turn.row, batch):
            return []
        can_share = self._kinds is not None and all(kind.prefills_together for kind in self._kinds)
        company = self._order.company(turn, self.rows.leaders())
        begun = (row for row in company if row is turn.row or self._begin(row, batch))
        rows = (gap.rows_together(begun, turn.allowance_tokens) if can_share else []) or [turn.row]
        for row in rows:
            if row.prefill_began_at is None:
                self._prefixes.count(row)
            for sibling in self.rows.family(row):
                sibling.prefill_began_at = sibling.prefill_began_at or now
        return rows

    def _begin(self, row: Row, batch: Batch) -> bool:
        """A row that has computed nothing takes over what others have. Whether it lives on."""
        with self._faults.ending([row], ErrorCode.PREFILL_FAILED):
            self._prefixes.begin(row, [*batch.groups, *self.ready], self.rows)
        return row.ending is None

    def _forward_together(self, rows: list[Row], read_beside: Callable[[], None]) -> int:
        """Returns the tokens forwarded, padding included. The last prompt tokens ride in the step that follows."""
        assert self._kinds is not None
        group = prefill.launch_together(self._parts.adapters.model_for(rows[0].adapter), self._kinds, rows)
        read_beside()
        prefill.wait_for_chunk(group.caches)
        self._faults.device_worked()
        self._prefixes.proven()
        # The rows stay in the queue until nothing can fail any more: there they are tried again.
        group.fork([self.rows.family(row) for row in rows])
        for row in rows:
            self.rows.take(row)
        self.ready.append(group)
        self._roster.tally.prompt_tokens += sum(len(row.to_prefill) for row in rows)
        return len(rows) * group.layout.width

    def _forward_chunk(self, row: Row, read_beside: Callable[[], None], *, has_batch: bool) -> int:
        """Returns the tokens forwarded; a row that is through becomes ready, or ends at its first token."""
        if row.caches is None:
            row.caches = make_prompt_cache(self._parts.model)
        model = self._parts.adapters.model_for(row.adapter)
        stop = self._prefixes.next_stop(row)
        chunk_tokens = self._parts.chunk_tokens
        tokens = prefill.launch_chunk(model, row, min(chunk_tokens, stop - row.prefilled) if stop else chunk_tokens)
        if tokens:
            read_beside()
            prefill.wait_for_chunk(row.caches)
            self._faults.device_worked()
            self._prefixes.proven()
            prefill.quantize(self._parts.cache_plan, row.caches, row.prefilled)
            self._prefixes.chunk_done(row)
        self._roster.tally.prompt_tokens += tokens
        if row.remaining_prefill_tokens > 1:
            self._allocator.chunk_done()
            self._note_progress(row, time.monotonic())
            return tokens
        self._roster.tally.prompt_tokens += 1
        self._finish(row, has_batch=has_batch)
        return tokens + 1

    def _finish(self, row: Row, *, has_batch: bool) -> None:
        """A row whose prompt is computed but for its last token, and with it its siblings."""
        self._roster.tell_prompt(row, self.rows.family(row))
        family = self.rows.take(row)
        for each in family:
            each.prefix.taken_tokens = row.prefix.taken_tokens
            each.prefix.float_tokens = row.prefix.float_tokens
        # Whether a step of other rows follows this prefill, and this row needs more than one token.
        has_company = row.limit > 1 and bool(has_batch or self.ready or len(self.rows))
        if row.prefilled and (len(family) > 1 or has_company):
            # A step follows within this gap: the last prompt token rides in it, without a forward of its own.
            # Not that of a prompt of one token: its caches are empty, and those cannot be stacked.
            with self._faults.ending(family, ErrorCode.PREFILL_FAILED):
                group = Group.of_one(self._kinds, row, row.to_prefill[-1])
                group.fork([family])
                self.ready.append(group)
        else:
            for each in family:
                self._begin_alone(each)

    def _note_progress(self, row: Row, now: float) -> None:
        """Whoever waits for a long prompt is told how far it is, but not after every chunk."""
        if row.first_token_at is None and now - row.progress_at >= PROGRESS_EVERY_S:
            row.progress_at = now
            self._roster.tell_progress(row)

    def _begin_alone(self, row: Row) -> None:
        """Reads the row's first token from a forward of its own."""
        with self._faults.ending([row], ErrorCode.PREFILL_FAILED):
            if row.caches is None:
                row.caches = make_prompt_cache(self._parts.model)
            token = prefill.first_token(self._parts.adapters.model_for(row.adapter), row, self._masks)
            prefill.quantize(self._parts.cache_plan, row.caches, row.prefilled)
            if self._roster.take_token(row, token, time.monotonic()):
                self.ready.append(Group.of_one(self._kinds, row, token))


def _part(rows: list[Row]) -> None:
    """Their common chunk met a fault: each is computed alone, so that only the one that it belongs to ends."""
    for row in rows:
        row.prefills_alone = True
        row.prefilled = 0
