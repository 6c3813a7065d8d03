"""The FakeEngine's rows: queueing, prefilling and decoding by script, with the real engine's rules for endings.

Knows no socket: a turn goes in, deltas come out.
"""

import time
from dataclasses import dataclass, field

from protocol.codec import pack_ids, unpack_ids
from protocol.errors import ErrorCode
from protocol.messages import Finish, FinishReason, RowDelta, Submit, TokenPrompt, Usage
from protocol.status import Counters, RowCounts
from tests.fakes.fake_logprobs import fake_prompt_logprobs, fake_row_logprobs
from tests.fakes.scripts import Script, ScriptedError

LONG_PROMPT_TOKENS = 256


@dataclass(slots=True, eq=False)
class FakeRow:
    """One Submit in the engine. left_tokens: prompt tokens not yet prefilled; with is_unread one always is."""

    client: bytes
    submit: Submit
    script: Script
    prompt_tokens: int
    left_tokens: int
    deadline_s: float | None
    emitted_tokens: int = 0
    is_cached_told: bool = False
    is_unread: bool = False


@dataclass(slots=True, eq=False)
class Tally:
    """Counters since the start."""

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    rejected: int = 0
    malformed_frames: int = 0
    stale_messages: int = 0
    steps: int = 0
    generated_tokens: int = 0

    def counters(self) -> Counters:
        """As the status tells them."""
        return Counters(
            submitted=self.submitted,
            finished=self.finished,
            cancelled=self.cancelled,
            failed=self.failed,
            rejected=self.rejected,
            malformed_frames=self.malformed_frames,
            stale_messages=self.stale_messages,
        )


@dataclass(slots=True, eq=False)
class FakeRows:
    """All live rows, in order of arrival."""

    max_rows: int
    prefill_tokens_per_turn: int
    context_length: int
    eos_id: int
    cached_tokens: int = 0
    tally: Tally = field(default_factory=Tally)
    waiting: list[FakeRow] = field(default_factory=list[FakeRow])
    running: list[FakeRow] = field(default_factory=list[FakeRow])

    def counts(self) -> RowCounts:
        """Live rows by state."""
        prefilling = sum(1 for row in self.running if row.left_tokens)
        return RowCounts(waiting=len(self.waiting), prefilling=prefilling, decoding=len(self.running) - prefilling)

    def live(self) -> list[FakeRow]:
        """Every row that has not ended."""
        return [*self.running, *self.waiting]

    def cancel(self, client: bytes, id_: str, reason: str) -> bool:
        """Ends a row; False when there is none."""
        for row in self.live():
            if (row.client, row.submit.id) == (client, id_):
                self._drop(row)
                if reason == "stop":
                    self.tally.finished += 1
                else:
                    self.tally.cancelled += 1
                return True
        return False

    def drop_client(self, client: bytes) -> None:
        """Ends all rows of a client that is gone."""
        for row in [row for row in self.live() if row.client == client]:
            self._drop(row)
            self.tally.cancelled += 1

    def turn(self) -> dict[bytes, list[RowDelta]]:
        """One step of every running row: deltas by client."""
        while self.waiting and len(self.running) < self.max_rows:
            self.running.append(self.waiting.pop(0))
        self.tally.steps += 1
        deltas: dict[bytes, list[RowDelta]] = {}
        for row in self.live():
            delta = self._late(row) or (self._step(row) if row in self.running else None)
            if delta is not None:
                deltas.setdefault(row.client, []).append(delta)
        return deltas

    def _late(self, row: FakeRow) -> RowDelta | None:
        if row.deadline_s is None or time.monotonic() < row.deadline_s:
            return None
        self.tally.cancelled += 1
        return self._ended(row, [], self._finish(row, "deadline"))

    def _step(self, row: FakeRow) -> RowDelta | None:
        if row.left_tokens:
            row.left_tokens = max(int(row.is_unread), row.left_tokens - self.prefill_tokens_per_turn)
            if row.left_tokens:
                # The real engine tells it once a second; here long prompts do, each turn.
                is_long = row.prompt_tokens >= LONG_PROMPT_TOKENS
                return RowDelta(id=row.submit.id, prefilled=row.prompt_tokens - row.left_tokens) if is_long else None
            return _of_prompt(row)
        try:
            offered = next(row.script)
        except ScriptedError as error:
            self.tally.failed += 1
            finish = Finish(reason="error", usage=self._usage(row), code=ErrorCode.DECODE_FAILED, message=str(error))
            return self._ended(row, [], finish)
        return self._emit(row, offered) if offered else None

    def _emit(self, row: FakeRow, offered: list[int]) -> RowDelta | None:
        """An EOS counts as a token, and wins over `length` on the last one; both as in the real engine."""
        told: list[int] = []
        submit = row.submit
        limit = min(submit.max_tokens or self.context_length, self.context_length - row.prompt_tokens)
        for id_ in offered:
            is_eos = id_ == self.eos_id and not submit.ignore_eos
            is_end = (is_eos or id_ in submit.stop_ids) and row.emitted_tokens >= submit.min_tokens
            if id_ == self.eos_id and not is_end:
                continue
            row.emitted_tokens += 1
            self.tally.generated_tokens += 1
            if is_end:
                self.tally.finished += 1
                return self._ended(row, told, self._finish(row, "stop", id_))
            told.append(id_)
            if row.emitted_tokens >= limit:
                self.tally.finished += 1
                return self._ended(row, told, self._finish(row, "length"))
        return self._gained(row, told, None) if told else None

    def _ended(self, row: FakeRow, told: list[int], finish: Finish) -> RowDelta:
        self._drop(row)
        return self._gained(row, told, finish)

    def _gained(self, row: FakeRow, told: list[int], finish: Finish | None) -> RowDelta:
        """What was there already is told with the first token alone."""
        logprobs = fake_row_logprobs(told, row.submit.logprobs) if told else None
        cached_tokens = self._cached(row) if told and not row.is_cached_told else None
        row.is_cached_told = row.is_cached_told or bool(told)
        return RowDelta(
            id=row.submit.id, tokens=pack_ids(told), finish=finish, logprobs=logprobs, cached_tokens=cached_tokens
        )

    def _cached(self, row: FakeRow) -> int | None:
        return min(self.cached_tokens, row.prompt_tokens - 1) or None

    def _finish(self, row: FakeRow, reason: FinishReason, stop_id: int | None = None) -> Finish:
        return Finish(reason=reason, usage=self._usage(row), stop_id=stop_id)

    def _usage(self, row: FakeRow) -> Usage:
        return Usage(
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.emitted_tokens,
            cached_tokens=self._cached(row) or 0,
        )

    def _drop(self, row: FakeRow) -> None:
        (self.waiting if row in self.waiting else self.running).remove(row)


def _of_prompt(row: FakeRow) -> RowDelta | None:
    """Sent once, when the prompt is read."""
    match row.submit.prompt:
        case TokenPrompt(ids=packed):
            logprobs = fake_prompt_logprobs(unpack_ids(packed), row.submit.logprobs)
    return None if logprobs is None else RowDelta(id=row.submit.id, prompt_logprobs=logprobs)
