"""How much prefill may run between two decode steps, and which waiting rows prefill as one chunk.

Pure policy over token counts: owns no row and touches no device.
"""

from collections.abc import Iterable
from typing import Final

from engine.row import Row

# Chunks' worth of whole short prompts that may be prefilled between two steps of a running batch: fewer, fuller
# steps for all. Before the first step it is one: nobody has a stream to fill the time with.
GAP_CHUNKS: Final = 4


class Gap:
    """One gap between two steps. chunk_tokens: of one prefill chunk. most_prompts: that go as one; None: all."""

    def __init__(self, chunk_tokens: int, most_prompts: int | None = None) -> None:
        self._chunk_tokens = chunk_tokens
        self._most_prompts = most_prompts
        # However short, a chunk streams every weight once: on each device this is worth about a quarter chunk.
        self._overhead_tokens = chunk_tokens // 4
        self._spent_tokens = 0

    def charge(self, tokens: int) -> None:
        """A chunk of so many tokens, padding included, has run while other rows could have decoded."""
        self._spent_tokens += tokens + self._overhead_tokens

    def is_long(self, row: Row) -> bool:
        """Whether the row's prompt takes more than one chunk, or has been begun."""
        return row.is_half_way or row.remaining_prefill_tokens > self._chunk_tokens

    def is_spent(self, head: Row, has_batch: bool) -> bool:
        """Whether rows that could decode have waited for enough of other rows' prefill. head: the next to prefill."""
        if self._spent_tokens == 0:
            return False
        budget_tokens = self._chunk_tokens * (GAP_CHUNKS if has_batch else 1)
        tokens = head.remaining_prefill_tokens + self._overhead_tokens
        return self.is_long(head) or self._spent_tokens + tokens > budget_tokens

    def rows_together(self, waiting: Iterable[Row], most_tokens: int | None = None) -> list[Row]:
        """The first waiting rows that cost less as one padded chunk than one by one; fewer than two: none.

        All are whole short prompts, and within what is left of a full gap, and of most_tokens if given; one whose
        log-probabilities are wanted needs logits over all of its prompt, and goes alone; so does one whose common
        chunk has failed.
        """
        rows: list[Row] = []
        width_tokens = alone_tokens = 0
        left_tokens = self._chunk_tokens * GAP_CHUNKS - self._spent_tokens - self._overhead_tokens
        left_tokens = left_tokens if most_tokens is None else min(left_tokens, most_tokens)
        for row in waiting:
            tokens = row.remaining_prefill_tokens - 1
            if row.prefilled or row.must_prefill_alone or not 0 < tokens <= self._chunk_tokens:
                break
            width_tokens = max(width_tokens, tokens)
            alone_tokens += tokens + self._overhead_tokens
            padded_tokens = (len(rows) + 1) * width_tokens
            if padded_tokens > left_tokens or padded_tokens + self._overhead_tokens > alone_tokens:
                break
            rows.append(row)
            if len(rows) == self._most_prompts:
                break
        return rows if len(rows) > 1 else []
