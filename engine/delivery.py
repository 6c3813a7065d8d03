"""Tells clients what their rows have gained: one Step per client and engine step.

What cannot be packed or sent costs the row that it is of; where that row's end cannot be told either, its client.
"""

import time
from collections.abc import Sequence
from functools import partial

import msgspec

from engine.containment import Containment
from engine.mailbox import Mailbox
from engine.outbox import AnyWord, Outbox
from engine.retire import Roster
from engine.row import Row
from protocol.errors import ErrorCode
from protocol.messages import Epoch, RowDelta, Step


class Delivery:
    """One per loop, between its outbox and its mailbox."""

    def __init__(self, epoch: Epoch, mailbox: Mailbox, outbox: Outbox, roster: Roster, faults: Containment) -> None:
        self._epoch = epoch
        self._mailbox = mailbox
        self._outbox = outbox
        self._roster = roster
        self._faults = faults
        self._withheld: set[Row] = set()

    def tell(self, step: int) -> None:
        """Sends what there is, prompts' log-probabilities ahead. step: number of the engine step."""
        for piece in self._outbox.take_prompts():
            self._tell_each([piece], step)
        for client, words in self._outbox.take().items():
            # Rows of one client share a Step: once that has failed each is packed alone, to find whose fault it is.
            with self._faults.handing([], partial(self._tell_each, words, step)):
                self._send(client, step, [word.delta() for word in self._due(words)])
        self._withheld.clear()

    def _due(self, words: Sequence[AnyWord]) -> Sequence[AnyWord]:
        return [word for word in words if word.row not in self._withheld] if self._withheld else words

    def _tell_each(self, words: Sequence[AnyWord], step: int, _why: str = "") -> None:
        for word in words:
            if word.row not in self._withheld:
                with self._faults.handing([word.row], partial(self._withhold, word.row, step)):
                    self._send(word.row.key.client, step, [word.delta()])

    def _withhold(self, row: Row, step: int, why: str) -> None:
        """The row ends here, with nothing but an error: without what was lost the rest would be taken for the whole."""
        now = time.monotonic()
        self._withheld.add(row)
        self._roster.fail(row, ErrorCode.INTERNAL, why, now)
        self._outbox.forget(row)
        end = msgspec.structs.replace(row.finish("error", now), code=ErrorCode.INTERNAL, message=why)
        client = row.key.client
        with self._faults.handing([row], lambda _why: self._mailbox.lose(client)):
            self._send(client, step, [RowDelta(id=row.key.id, finish=end)])

    def _send(self, client: bytes, step: int, deltas: list[RowDelta]) -> None:
        if deltas:
            self._mailbox.tell_step(client, Step(epoch=self._epoch, step=step, rows=tuple(deltas)))
