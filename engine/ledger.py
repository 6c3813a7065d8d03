"""The ledger: what all rows may take at the coming turn, and whether more of them have room beside that.

Looks at batch and prefill, changes neither. Kept prefixes are not in it: they have what it leaves of the budget.
"""

from collections.abc import Iterable, Sequence

from engine.batch import Batch, Group
from engine.cache.columns import STEP_TOKENS
from engine.parts import LoopParts
from engine.prefilling import Prefilling
from engine.row import Row
from protocol.messages import MAX_DRAFT_TOKENS


class Ledger:
    """One per loop."""

    def __init__(self, parts: LoopParts, batch: Batch, prefilling: Prefilling) -> None:
        self._plan = parts.memory
        self._speculator = parts.speculator
        self._chunk_tokens = parts.chunk_tokens
        self._batch = batch
        self._prefilling = prefilling

    @property
    def budget_bytes(self) -> int:
        """What it may come to."""
        return self._plan.budget_bytes

    @property
    def live_rows(self) -> int:
        """Rows that have begun, or may begin now."""
        return len(self._batch) + self._prefilling.live_rows

    @property
    def size_bytes(self) -> int:
        """What all rows may take at the coming turn: caches, the largest layer twice, and what is computed."""
        return self._with(()) + self._guessing_bytes

    @property
    def may_guess(self) -> bool:
        """Whether a draft model's caches have room beside more rows than one: guesses hold up nobody's start."""
        draft = self._plan.draft
        if draft is None or self.live_rows <= 1:
            return True
        longest = max((row.known_count for row in self._batch), default=0)
        return self._with(()) + draft.of(longest) <= self.budget_bytes

    def fitting(self, family: Sequence[Row], *, is_tight: bool) -> int:
        """How many of these, the choices of one request, may start now: all of them, where they ever fit together.
        Guesses are not counted: who takes these rows in asks `may_guess` next.

        is_tight: only where each row that lives has room to grow, too.
        """
        most = self.budget_bytes
        if is_tight and self.live_rows:
            most -= self._growth_bytes(self.live_rows + 1)
        count = len(family)
        while count and self._with(family[:count]) > most:
            count -= 1
        if not self.live_rows:
            # Alone it has room: a longer one was refused.
            return max(count, 1)
        return count if count == len(family) or not self._ever_fit(family) else 0

    def chunk_tokens_left(self) -> int:
        """Prompt tokens, padding included, that may be computed at once: a chunk of one row always is."""
        footprint, working = self._plan.footprint, self._plan.working
        column_bytes = 0 if footprint is None else footprint.column_bytes
        token_bytes = column_bytes + -(-working.chunk_bytes // self._chunk_tokens)
        left_bytes = max(0, self.budget_bytes - self.size_bytes)
        return self._chunk_tokens + left_bytes // max(1, token_bytes)

    @property
    def most_decoding_bytes(self) -> int:
        """What caches of rows that decode, or are about to, may take, their largest layer twice."""
        rows = self._prefilling.rows
        longest = max((len(row.to_prefill) for row in rows), default=0)
        working_bytes = self._plan.working.of(longest) if longest else 0
        sampled = self.live_rows - len(rows)
        return self.budget_bytes - self._start_bytes(rows) - working_bytes - sampled * self._plan.sampling_bytes

    def _with(self, more: Sequence[Row]) -> int:
        """With rows that are to start, without guesses."""
        decoding = [group.charge(self._tokens_next(group)) for group in self._batch.groups]
        ready = [group.charge() for group in self._prefilling.ready]
        caches_bytes = max(sum(each.size_bytes for each in decoding), self._batch.lingering_bytes)
        caches_bytes += sum(each.size_bytes for each in ready)
        sampled = len(self._batch) + sum(len(group.rows) for group in self._prefilling.ready)
        starting = [*self._prefilling.rows, *more]
        layer_bytes = max((each.layer_bytes for each in (*decoding, *ready)), default=0)
        working_bytes = 0
        if starting:
            longest = max(len(row.to_prefill) for row in starting)
            layer_bytes = max(layer_bytes, self._plan.layer_bytes(longest))
            working_bytes = self._plan.working.of(longest)
        fixed_bytes = sampled * self._plan.sampling_bytes + layer_bytes + working_bytes
        return caches_bytes + fixed_bytes + self._start_bytes(starting)

    def _start_bytes(self, rows: Iterable[Row]) -> int:
        return sum(self._plan.start_bytes(len(row.to_prefill), reads=row.wants_prompt_logprobs) for row in rows)

    def _ever_fit(self, family: Sequence[Row]) -> bool:
        shared_bytes = self._plan.shared_bytes(len(family[0].to_prefill))
        return self._start_bytes(family) + shared_bytes <= self.budget_bytes

    def _growth_bytes(self, rows: int) -> int:
        """For one growth of each of so many rows."""
        column_bytes = 0 if self._plan.footprint is None else self._plan.footprint.column_bytes
        return rows * STEP_TOKENS * column_bytes

    @property
    def _guessing_bytes(self) -> int:
        """Of the draft model's caches, and of the guesses of a row that is alone."""
        if self._speculator is None or self._plan.draft is None:
            return 0
        allocated_bytes = self._speculator.allocated_bytes
        is_due = len(self._batch) == 1 and (allocated_bytes > 0 or self.live_rows == 1)
        return allocated_bytes + (self._plan.draft.reading_bytes if is_due else 0)

    def _tokens_next(self, group: Group) -> int:
        """How many tokens its rows may write in one turn: alone a row may take what its grammar or a draft says."""
        if len(group.rows) > 1:
            return 1
        row = group.rows[0]
        most = self._chunk_tokens if row.grammar is not None else 1
        if self._speculator is not None and len(self._batch) == 1:
            most = max(most, MAX_DRAFT_TOKENS + 1)
        return max(1, min(most, row.limit - row.emitted))
