"""The loop: hear, admit, prefill, decode, tell. The only thread that touches MLX; owns the schedule."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, assert_never

import mlx.core as mx

from engine import decode, prefill
from engine.admission import Admission
from engine.batch import Batch, Group
from engine.constrained import MaskedStep, launch_beside_masks, launch_rest
from engine.errors import EngineError
from engine.gap import Gap
from engine.intake import Intake
from engine.jump import jump_forward
from engine.mailbox import CancelHeard, ClientLost, ControlHeard, SubmitHeard
from engine.memory import Allocator
from engine.outbox import Outbox
from engine.parts import LoopParts
from engine.prefilling import Prefilling
from engine.pulse import Pulse
from engine.report import Progress, Reporter
from engine.retire import Roster, Tally
from engine.row import Row, RowKey
from engine.sampling.masks import GrammarMasks
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

# How long an idle loop sleeps at most before it looks at leases and at the stop flag.
IDLE_WAIT_MS: Final = 250
# The same while all that is to do is done by the threads that compile grammars.
COMPILE_WAIT_MS: Final = 2


class Launched(NamedTuple):
    """A group whose next step the device works on, and the register of the step before, still to be read.

    masked: the next step, where what is read says what may be sampled.
    """

    group: Group
    register: mx.array
    masked: MaskedStep | None = None


class EngineLoop:
    """One engine's schedule. Rows wait, prefill, are ready, and decode together."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._adapters = parts.adapters
        self._mailbox = parts.mailbox
        self._board = parts.board
        self._tally = Tally()
        self._outbox = Outbox(parts.board.epoch)
        self._roster = Roster(self._outbox, self._tally)
        self._admission = Admission(parts.facts)
        self._intake = Intake(parts, self._roster, self._admission, self._tally)
        self._allocator = Allocator(parts.weights_bytes)
        self._reporter = Reporter(parts.board, parts.mailbox, self._roster, self._tally)
        self._batch = Batch(parts.cache_plan.kinds(parts.model), parts.weights_bytes)
        self._masks = GrammarMasks(parts.grammars.tokenizer)
        self._prefilling = Prefilling(parts, self._roster, self._allocator, self._masks, self._contained)
        self._pulse = Pulse()
        self._drain_ends_at: float | None = None

    def run(self) -> None:
        """Serves until `stop` is set and the live rows are done, or the grace time is over."""
        while not self._is_drained():
            self.turn()
        self._tell()
        self._publish()
        self._mailbox.say_goodbye("the engine was stopped")

    def turn(self) -> None:
        """One round of the loop; waits for mail when there is nothing to do."""
        self._hear(self._wait_ms())
        self._admit()
        self._prefill()
        self._decode()
        self._tell()
        self._publish_when_due()

    # --- hear -----------------------------------------------------------------------------------

    def _wait_ms(self) -> int:
        if not self._roster.rows:
            return IDLE_WAIT_MS
        return COMPILE_WAIT_MS if len(self._roster.rows) == self._admission.compiling_rows else 0

    def _hear(self, wait_ms: int) -> None:
        for heard in self._mailbox.hear(time.monotonic(), wait_ms):
            match heard:
                case SubmitHeard():
                    self._intake.queue(RowKey(heard.client, heard.submit.id), heard.submit)
                case CancelHeard():
                    self._intake.cancel(heard.client, heard.cancel)
                case ControlHeard():
                    self._obey(heard)
                case ClientLost():
                    self._end_client(heard)
                case _:
                    assert_never(heard)
        self._end_late_rows(time.monotonic())
        self._drain()
        self._remove_ended()

    def _obey(self, heard: ControlHeard) -> None:
        try:
            self._parts.mounter.obey(heard.control)
        except EngineError as error:
            self._mailbox.control_done(heard, error.message)
        else:
            self._board.set_adapters(self._adapters.names)
            self._mailbox.control_done(heard, None)

    def _end_client(self, lost: ClientLost) -> None:
        now = time.monotonic()
        for row in self._roster.of_client(lost.client):
            self._roster.end(row, "lease_lost", now)
        if lost.is_reachable:
            self._tell()
            self._mailbox.end_lease(lost.client)

    def _end_late_rows(self, now: float) -> None:
        for row in self._roster.late(now):
            self._roster.end(row, "deadline", now)

    def _remove_ended(self) -> None:
        ended = self._roster.ended
        if not ended:
            return
        self._admission.remove(ended)
        self._prefilling.remove(ended)
        self._batch.leave(ended)
        ended.clear()

    # --- admit and prefill ----------------------------------------------------------------------

    def _admit(self) -> None:
        self._intake.settle_grammars()
        self._remove_ended()
        live = self._prefilling.live_rows + len(self._batch)
        while self._admission.can_admit(live):
            for row in self._admission.admit():
                self._prefilling.rows.add(row)
                live += 1

    def _prefill(self) -> None:
        """As long as it takes while nobody waits for a step; else one gap, and of a long row one chunk."""
        gap = Gap(self._parts.chunk_tokens, self._parts.prompt_concurrency)
        while self._prefilling.can_advance(gap, has_batch=len(self._batch) > 0):
            self._board.turn_began()
            self._prefilling.advance(gap, self._read_beside_chunk, has_batch=len(self._batch) > 0)
            self._board.turn_ended()
            self._tell()
            self._hear(0)
            self._admit()
            self._publish_when_due()

    def _read_beside_chunk(self) -> None:
        """Tells what the step before this chunk has sampled: it is done long before the chunk is."""
        for group in self._batch.groups:
            with self._contained(group.rows, ErrorCode.DECODE_FAILED):
                self._take(Launched(group, group.register))
        self._tell()

    # --- decode ---------------------------------------------------------------------------------

    def _decode(self) -> None:
        if self._prefilling.ready:
            self._join_ready()
        if not self._batch.groups:
            return
        began_at = time.monotonic()
        self._board.turn_began()
        if not self._speculate():
            self._step()
        self._remove_ended()
        self._board.turn_ended()
        self._pulse.step_done(began_at, time.monotonic(), has_rows=len(self._batch) > 0)
        self._allocator.step_done()

    def _step(self) -> None:
        launched = [launch for group in self._batch.groups if (launch := self._launch(group))]
        for launch in launched:
            with self._contained(launch.group.rows, ErrorCode.DECODE_FAILED):
                self._take(launch)
                self._sample_rest(launch)

    def _speculate(self) -> bool:
        """Whether a lone row got tokens that the draft model had guessed, in place of a step."""
        speculator, group = self._parts.speculator, self._batch.groups[0]
        if speculator is None or len(self._batch) > 1 or not speculator.can_advance(group):
            return False
        with self._contained(group.rows, ErrorCode.DECODE_FAILED):
            self._take(Launched(group, group.register))
            model = self._adapters.model_for(group.adapter)
            return speculator.advance(model, group, self._roster, self._tally)
        return True

    def _join_ready(self) -> None:
        joiners = self._prefilling.take_ready()
        rows = [row for group in joiners for row in group.rows]
        with self._contained([*self._batch, *rows], ErrorCode.DECODE_FAILED):
            self._batch.join(joiners)
        self._remove_ended()

    def _launch(self, group: Group) -> Launched | None:
        """Starts step n before step n-1 is read. None when it could not be built: then the rows have ended.

        Beside a grammar its rows are not sampled yet: which tokens may follow is known once step n-1 is read.
        """
        register = group.register
        if all(row.is_last_token_pending for row in group.rows):
            return Launched(group, register)
        with self._contained(group.rows, ErrorCode.DECODE_FAILED):
            if self._parts.cache_plan.start_tokens:
                prefill.quantize(self._parts.cache_plan, group.caches, group.layout.width)
            logits = decode.launch_forward(self._adapters.model_for(group.adapter), group)
            if group.split is not None:
                return Launched(group, register, launch_beside_masks(logits, group, self._masks))
            group.register = decode.launch_sample(logits, group)
            return Launched(group, register)
        return None

    def _take(self, launch: Launched) -> None:
        """Reads step n-1 for the rows whose token in it nobody has read."""
        rows = launch.group.rows
        if not any(row.has_unread for row in rows):
            return
        tokens = decode.read(launch.register) if launch.masked is None else launch.masked.known_tokens()
        now = time.monotonic()
        for row, token in zip(rows, tokens, strict=True):
            if row.has_unread:
                row.has_unread = False
                self._roster.take_token(row, token, now)

    def _sample_rest(self, launch: Launched) -> None:
        """Samples what of step n waits for masks, unless a lone row knows what comes next."""
        group = launch.group
        if launch.masked is not None:
            launch.masked.wait()
            if jump_forward(self._adapters.model_for(group.adapter), group, self._roster, self._parts.chunk_tokens):
                return
            launch_rest(launch.masked, group, self._masks)
        for row in group.rows:
            row.has_unread = True

    @contextmanager
    def _contained(self, rows: list[Row], code: ErrorCode) -> Iterator[None]:
        """A fault in here ends these rows and nothing else: the one broad except of the engine's work."""
        try:
            yield
        except Exception as error:  # whatever a model's code or the device raises
            log.exception("rows.failed", extra={"ids": [row.key.id for row in rows]})
            now = time.monotonic()
            for row in rows:
                self._roster.fail(row, code, f"{type(error).__name__}: {error}", now)

    # --- tell -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._outbox.flush(self._mailbox, self._pulse.steps)

    def _publish_when_due(self) -> None:
        if self._reporter.is_due():
            self._publish()

    def _publish(self) -> None:
        progress = Progress(
            waiting=len(self._admission.waiting),
            oldest_at=min((row.submitted_at for row in self._admission.waiting), default=None),
            decoding=len(self._batch),
            step=self._pulse.status(),
            kv_bytes=self._prefilling.allocated_bytes + self._batch.allocated_bytes,
            ledger_bytes=self._batch.ledger_bytes,
        )
        self._reporter.publish(progress, self._allocator)

    # --- stop -----------------------------------------------------------------------------------

    def _is_drained(self) -> bool:
        self._drain()
        self._remove_ended()
        return self._drain_ends_at is not None and not self._roster.rows

    def _drain(self) -> None:
        """Once `stop` is set no row comes in, and after the grace none goes on: also in the middle of a prefill."""
        if not self._parts.stop.is_set():
            return
        now = time.monotonic()
        if self._drain_ends_at is None:
            self._drain_ends_at = now + self._parts.grace_s
            self._intake.close()
            self._board.set_phase("draining", f"rows that may finish: {len(self._roster.rows)}")
            log.info("loop.draining", extra={"rows": len(self._roster.rows), "grace_s": self._parts.grace_s})
        if now >= self._drain_ends_at:
            for row in list(self._roster.rows.values()):
                self._roster.fail(row, ErrorCode.SHUTTING_DOWN, "the engine was stopped before the end", now)
