"""How rows gain tokens and how they end: every row that was added here gets exactly one finish."""

import logging
from dataclasses import dataclass
from typing import assert_never

import msgspec

from engine.outbox import Outbox
from engine.row import Row, RowKey
from engine.sampling.grammar import RowGrammar
from protocol.errors import ErrorCode
from protocol.messages import Cancel, Finish, FinishReason
from protocol.status import Counters

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Tally:
    """Totals since start; see protocol.status.Counters."""

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    rejected: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0

    def counters(self, malformed_frames: int, stale_messages: int) -> Counters:
        """The part of the tally that travels in a status."""
        return Counters(
            submitted=self.submitted,
            finished=self.finished,
            cancelled=self.cancelled,
            failed=self.failed,
            rejected=self.rejected,
            malformed_frames=malformed_frames,
            stale_messages=stale_messages,
            preemptions=self.preemptions,
        )


class Roster:
    """Every live row, whatever it is doing. ended: rows that have finished but still stand in queue or batch."""

    def __init__(self, outbox: Outbox, tally: Tally) -> None:
        self._outbox = outbox
        self.tally = tally
        self.rows: dict[RowKey, Row] = {}
        self.ended: set[Row] = set()
        self._with_deadline: set[Row] = set()

    def add(self, row: Row) -> None:
        """A row that has just been queued."""
        self.rows[row.key] = row
        if row.deadline_at is not None:
            self._with_deadline.add(row)

    def of_client(self, client: bytes) -> list[Row]:
        """The client's live rows."""
        return [row for key, row in self.rows.items() if key.client == client]

    def late(self, now: float) -> list[Row]:
        """Live rows whose deadline has passed. now: monotonic seconds."""
        return [row for row in self._with_deadline if row.deadline_at is not None and now >= row.deadline_at]

    def tell_progress(self, row: Row) -> None:
        """How far the row's prompt is computed."""
        self._outbox.add_progress(row)

    def tell_prompt(self, leader: Row, family: list[Row]) -> None:
        """The log-probabilities of a prompt that is through, to those who asked. leader: who prefilled it."""
        if not leader.wants_prompt_logprobs:
            return
        entries = [None, *(each.read() for each in leader.prompt_logprobs)]
        leader.prompt_logprobs.clear()
        for row in family:
            row.is_prompt_told = True
            self._outbox.add_prompt_logprobs(row, entries)

    def take_token(self, row: Row, token: int, now: float) -> bool:
        """A token that was read for the row. Returns whether the row goes on. now: monotonic seconds.

        A stop token ends the row without being delivered, also when it is the last one allowed. So does a
        token after which the row's grammar has no other, but it is delivered. One that was impossible ends it, too.
        """
        self.tally.generated_tokens += 1
        if row.first_token_at is None:
            row.first_token_at = now
            self._outbox.add_cached(row)
        logprobs = row.unread_logprobs.popleft().read() if row.unread_logprobs else None
        if row.grammar is not None and not self._is_sound(row, row.grammar, now):
            return False
        is_ahead = row.grammar is not None and row.grammar.is_ahead
        if not is_ahead and row.is_dead_end(token):
            self._end_dead(row, now)
            return False
        if token in row.stop_ids:
            self._end(row, row.finish("stop", now, stop_id=token))
            return False
        if row.grammar is not None:
            row.grammar.take(token)
            if not self._is_sound(row, row.grammar, now):
                return False
        row.emitted += 1
        row.told.append(token)
        self._outbox.add_token(row, token, logprobs)
        if row.grammar is not None and row.grammar.is_satisfied:
            self.end(row, "stop", now)
        elif row.emitted >= row.limit:
            self.end(row, "length", now)
        return row.key in self.rows

    def _is_sound(self, row: Row, grammar: RowGrammar, now: float) -> bool:
        """Ends a row whose grammar cannot go on: at a limit, or where no token was left to it."""
        fault = grammar.fault
        if fault is not None:
            self.fail(row, fault.code, fault.message, now)
        return fault is None

    def _end_dead(self, row: Row, now: float) -> None:
        """Ends a row that had no possible token: well where its grammar may end, else by its client's fault."""
        if row.grammar is not None and row.grammar.may_end:
            self.end(row, "stop", now)
        else:
            self.fail(row, row.dead_end.code, row.dead_end.message, now)

    def withdraw(self, row: Row) -> None:
        """Forgets a row that is answered with a Rejected instead of a finish."""
        if self.rows.pop(row.key, None) is not None:
            self._with_deadline.discard(row)
            self.ended.add(row)

    def end(self, row: Row, reason: FinishReason, now: float) -> None:
        """Ends a row in whatever state it is."""
        self._end(row, row.finish(reason, now))

    def fail(self, row: Row, code: ErrorCode, message: str, now: float) -> None:
        """Ends a row by a fault of the engine or of its own."""
        self._end(row, msgspec.structs.replace(row.finish("error", now), code=code, message=message))

    def _end(self, row: Row, finish: Finish) -> None:
        if self.rows.pop(row.key, None) is None:
            return
        row.ending = finish
        self._with_deadline.discard(row)
        self.ended.add(row)
        self._outbox.add_finish(row, finish)
        match finish.reason:
            case "stop" | "length":
                self.tally.finished += 1
            case "error":
                self.tally.failed += 1
            case "cancelled" | "deadline" | "lease_lost":
                self.tally.cancelled += 1
        log.info(
            "row.finished",
            extra={
                "id": row.key.id,
                "reason": finish.reason,
                "prompt_tokens": finish.usage.prompt_tokens,
                "cached_tokens": finish.usage.cached_tokens,
                "completion_tokens": finish.usage.completion_tokens,
                "queue_ms": finish.timings.queue_ms,
                "prefill_ms": finish.timings.prefill_ms,
                "decode_ms": finish.timings.decode_ms,
            },
        )


def finish_reason_of(cancel: Cancel) -> FinishReason:
    """How a row ends that its client has ended."""
    match cancel.reason:
        case "stop":
            return "stop"
        case "deadline":
            return "deadline"
        case "gone" | "user":
            return "cancelled"
        case _:
            assert_never(cancel.reason)
