"""Whose prompt is computed next. Pure policy over token counts: owns no row and touches no device.

First come, first served, but a prompt at most half as long as what is left of one before it goes before that one, as
long as it holds it up by no more than its own length: nobody waits twice as long as in the order of arrival. Rows of
a lower priority wait for all that have a higher one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import Final

from engine.row import Row

# Prompts of several chunks that are computed in part at once: each holds its KV and gives no token yet.
MOST_HALF_WAY: Final = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """row: whose chunk comes next. passed: rows before it that wait for it. allowance_tokens: they wait for at most."""

    row: Row
    passed: tuple[Row, ...] = ()
    allowance_tokens: int | None = None

    def within(self, most_tokens: int) -> "Turn":
        """The same with no larger allowance than this."""
        most = most_tokens if self.allowance_tokens is None else min(self.allowance_tokens, most_tokens)
        return replace(self, allowance_tokens=most)


class PrefillOrder:
    """chunk_tokens: of one prefill chunk; what runs is never counted as less."""

    def __init__(self, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens

    def turn(self, waiting: Sequence[Row]) -> Turn:
        """Who goes next of these, of which there is one. waiting: by priority, then in the order in which they came."""
        candidates = [row for row in waiting if row.submit.priority == waiting[0].submit.priority]
        room = MOST_HALF_WAY - 1 - sum(self._is_half_way(row) for row in waiting[1:])
        passed: list[Row] = []
        allowance_tokens: int | None = None
        while True:
            first, *later = candidates
            left_tokens = _left_tokens(first)
            candidates = [row for row in later if self._may_pass(row, first, room)]
            if not candidates or left_tokens <= self._chunk_tokens:
                return Turn(first, tuple(passed), allowance_tokens)
            passed.append(first)
            allowance_tokens = left_tokens if allowance_tokens is None else min(allowance_tokens, left_tokens)

    def company(self, turn: Turn, waiting: Iterable[Row]) -> Iterator[Row]:
        """The row whose turn it is and the whole short prompts behind it that may share its chunk."""

        def is_alike(row: Row) -> bool:
            is_equal = row.submit.priority == turn.row.submit.priority and row.adapter is turn.row.adapter
            return is_equal and self._is_short(row)

        return takewhile(is_alike, dropwhile(lambda row: row is not turn.row, waiting))

    def charge(self, turn: Turn, tokens: int) -> None:
        """So many tokens, padding included, were computed in this turn."""
        turn.row.lead_tokens += tokens
        for row in turn.passed:
            row.lead_tokens -= max(tokens, self._chunk_tokens)

    def _may_pass(self, row: Row, first: Row, room: int) -> bool:
        is_much_shorter = 2 * row.remaining_prefill_tokens <= first.remaining_prefill_tokens
        return is_much_shorter and (self._is_short(row) or self._is_half_way(row) or room > 0)

    def _is_short(self, row: Row) -> bool:
        """Whether one chunk computes all of it but the last token, which rides in a step."""
        return row.prefilled == 0 and row.remaining_prefill_tokens - 1 <= self._chunk_tokens

    def _is_half_way(self, row: Row) -> bool:
        return row.prefilled > 0


def _left_tokens(row: Row) -> int:
    """What may still pass: at first half of its own tokens, and one more for each two of them that are computed."""
    return row.lead_tokens + row.remaining_prefill_tokens // 2
