"""The loop: hear, admit, prefill, decode, tell. The only thread that touches MLX; owns the schedule."""

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, assert_never

import mlx.core as mx

from engine import decode, prefill
from engine.admission import Admission
from engine.batch import Batch, Group
from engine.constrained import MaskedStep, launch_beside_masks, launch_rest
from engine.containment import Containment
from engine.delivery import Delivery
from engine.errors import DeviceLost, EngineError
from engine.gap import Gap
from engine.intake import Intake
from engine.jump import jump_forward
from engine.ledger import Ledger
from engine.mailbox import CancelHeard, ClientLost, ControlHeard, SubmitHeard
from engine.memory import Allocator
from engine.outbox import Outbox
from engine.parts import LoopParts
from engine.preemption import Places, Preemption
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
        outbox = Outbox()
        self._roster = Roster(outbox, self._tally)
        self._prefixes = parts.prefixes
        self._faults = Containment(self._roster, self._prefixes.distrust)
        self._delivery = Delivery(parts.board.epoch, parts.mailbox, outbox, self._roster, self._faults)
        self._admission = Admission(parts.facts, parts.memory)
        self._intake = Intake(parts, self._roster, self._admission, self._faults)
        draft_bytes = 0 if parts.speculator is None else parts.speculator.weights_bytes
        self._allocator = Allocator(parts.weights_bytes + draft_bytes, parts.memory.budget_bytes)
        self._reporter = Reporter(parts.board, parts.mailbox, self._roster, self._tally)
        kinds = parts.cache_plan.kinds(parts.model)
        self._batch = Batch(kinds, parts.weights_bytes, lambda: self._ledger.most_decoding_bytes)
        self._masks = GrammarMasks(parts.grammars.tokenizer)
        self._prefilling = Prefilling(parts, self._roster, self._allocator, self._masks, self._faults)
        self._ledger = Ledger(parts, self._batch, self._prefilling)
        places = Places(self._admission, self._prefilling, self._batch, self._roster, self._faults, self._read_now)
        self._preemption = Preemption(parts, self._ledger, places)
        self._pulse = Pulse()
        self._drain_ends_at: float | None = None

    def run(self) -> None:
        """Serves until `stop` is set and the live rows are done, or the grace time is over.

        Raises DeviceLost once every row and client was told.
        """
        try:
            while not self._is_drained():
                self.turn()
        except DeviceLost as lost:
            self._end("the engine starts again, try again soon: the device fails", f"{lost}")
            raise
        self._end("the engine was stopped")

    def _end(self, message: str, detail: str = "") -> None:
        """Last words to rows that still live, and to clients."""
        self._fail_all(f"{message}: {detail}" if detail else message)
        self._tell()
        self._try_publish()
        self._mailbox.say_goodbye(message)

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
        if self._faults.is_device_in_doubt:
            self._board.turn_began()
            self._faults.check_device(lambda: prefill.forward_one(self._parts.model))
            self._board.turn_ended()
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
        with self._faults.handing([], lambda why: self._mailbox.control_done(heard, why)):
            if heard.control.command == "flush_prefixes":
                self._mailbox.control_done(heard, None, self._prefixes.clear())
                return
            try:
                self._parts.mounter.obey(heard.control)
            except EngineError as error:
                self._mailbox.control_done(heard, error.message)
                return
            self._prefixes.forget_unmounted()
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
        """Takes what has ended out of queue and groups. What a fault ends meanwhile has its turn, too."""
        while self._roster.ended:
            ended = set(self._roster.ended)
            self._roster.ended.clear()
            with self._faults.ending([], ErrorCode.DECODE_FAILED):
                self._prefixes.leave(ended, [*self._batch.groups, *self._prefilling.ready], self._ledger.size_bytes)
            self._admission.remove(ended)
            self._prefilling.remove(ended)
            if self._parts.speculator is not None:
                self._parts.speculator.forget(ended)
            rows_before = len(self._batch)
            if not ended.isdisjoint(self._batch):
                self._batch.linger(ended)
            self._batch.groups = self._faults.groups_left(self._batch.groups, ended, ErrorCode.DECODE_FAILED)
            if len(self._batch) < rows_before:
                with self._faults.handing([*self._batch], _goes_on):
                    self._batch.rearrange()
                    self._settle_groups()

    # --- admit and prefill ----------------------------------------------------------------------

    def _admit(self) -> None:
        self._intake.settle_grammars()
        self._remove_ended()
        self._preemption.start_rows()

    def _prefill(self) -> None:
        """As long as it takes while nobody waits for a step; else one gap, and of a long row one chunk."""
        gap = Gap(self._parts.chunk_tokens, self._parts.prompt_concurrency)
        while turn := self._prefilling.next_turn(gap, has_batch=len(self._batch) > 0):
            self._board.turn_began()
            turn = turn.within(self._ledger.chunk_tokens_left())
            self._prefilling.advance(turn, gap, self._read_beside_chunk, self._batch)
            self._board.turn_ended()
            self._tell()
            self._hear(0)
            self._admit()
            self._publish_when_due()

    def _read_beside_chunk(self) -> None:
        """Tells what the step before this chunk has sampled: it is done long before the chunk is."""
        for group in self._batch.groups:
            self._take(Launched(group, group.register))
        self._tell()

    def _read_now(self, group: Group) -> None:
        """What the group has sampled is told before one of its rows gives way."""
        self._take(Launched(group, group.register))
        self._remove_ended()

    # --- decode ---------------------------------------------------------------------------------

    def _decode(self) -> None:
        if self._prefilling.ready:
            self._join_ready()
            self._preemption.make_room()
        if not self._batch.groups:
            return
        began_at = time.monotonic()
        self._board.turn_began()
        if not self._speculate():
            self._step()
        self._remove_ended()
        self._board.turn_ended()
        self._batch.step_done()
        self._preemption.make_room()
        self._pulse.step_done(began_at, time.monotonic(), has_rows=len(self._batch) > 0)
        self._allocator.step_done()

    def _step(self) -> None:
        launched = [launch for group in self._batch.groups if (launch := self._launch(group))]
        for launch in launched:
            if self._take(launch):
                with self._faults.ending(launch.group.rows, ErrorCode.DECODE_FAILED):
                    self._sample_rest(launch)

    def _speculate(self) -> bool:
        """Whether a lone row got tokens that the draft model had guessed, in place of a step."""
        speculator, group = self._parts.speculator, self._batch.groups[0]
        if speculator is None or len(self._batch) > 1 or not self._ledger.may_guess:
            return False
        with self._faults.ending(group.rows, ErrorCode.DECODE_FAILED):
            if not speculator.can_advance(group):
                return False
            if not self._take(Launched(group, group.register)):
                return True
            model = self._adapters.model_for(group.adapter)
            return speculator.advance(model, group, self._roster, self._tally)
        return True

    def _join_ready(self) -> None:
        """All ready rows at once. Where that fails, one after another: a joiner's fault ends the joiner."""
        joiners = self._prefilling.take_ready()
        if not self._have_joined(joiners):
            for joiner in joiners:
                with self._faults.ending(joiner.rows, ErrorCode.DECODE_FAILED):
                    self._batch.join([joiner])
        self._remove_ended()

    def _have_joined(self, joiners: list[Group]) -> bool:
        with self._faults.handing([row for group in joiners for row in group.rows], _goes_on):
            self._batch.join(joiners)
            self._settle_groups()
            return True
        return False

    def _settle_groups(self) -> None:
        """Of several groups the caches of one would hold on to those of another, of which both are made."""
        if len(self._batch.groups) > 1:
            prefill.settle(self._batch.groups)
            self._batch.settled()

    def _launch(self, group: Group) -> Launched | None:
        """Starts step n before step n-1 is read. None when it could not be built: then the rows have ended.

        Beside a grammar its rows are not sampled yet: which tokens may follow is known once step n-1 is read.
        """
        register = group.register
        if all(row.is_last_token_pending for row in group.rows):
            return Launched(group, register)
        with self._faults.ending(group.rows, ErrorCode.DECODE_FAILED):
            if self._parts.cache_plan.start_tokens:
                prefill.quantize(self._parts.cache_plan, group.caches, group.layout.width)
            logits = decode.launch_forward(self._adapters.model_for(group.adapter), group)
            if group.split is not None:
                return Launched(group, register, launch_beside_masks(logits, group, self._masks))
            group.register = decode.launch_sample(logits, group)
            return Launched(group, register)
        return None

    def _take(self, launch: Launched) -> bool:
        """Reads step n-1 for the rows whose token in it nobody has read. False when that failed: they have ended."""
        rows = launch.group.rows
        if not any(row.has_unread for row in rows):
            return True
        with self._faults.ending(rows, ErrorCode.DECODE_FAILED):
            tokens = decode.read(launch.register) if launch.masked is None else launch.masked.known_tokens()
            self._prefixes.proven()
            self._faults.device_worked()
            unread = iter([(row, token) for row, token in zip(rows, tokens, strict=True) if row.has_unread])
            now = time.monotonic()
            while self._take_each(unread, now):
                pass
            return True
        return False

    def _take_each(self, unread: Iterator[tuple[Row, int]], now: float) -> bool:
        """Whether some are left, behind one whose own fault ended it. One context for all: it is entered each step."""
        taking: list[Row] = []
        with self._faults.ending(taking, ErrorCode.DECODE_FAILED):
            for row, token in unread:
                taking[:] = (row,)
                row.has_unread = False
                self._roster.take_token(row, token, now)
            return False
        return True

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

    # --- tell -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._delivery.tell(self._pulse.steps)

    def _publish_when_due(self) -> None:
        if self._reporter.is_due():
            self._try_publish()

    def _try_publish(self) -> None:
        with self._faults.retrying("status.unpublished"):
            self._publish()

    @property
    def _live_bytes(self) -> int:
        """Of the caches of all rows that live."""
        return self._prefilling.allocated_bytes + self._batch.allocated_bytes

    def _publish(self) -> None:
        waiting = [*self._admission.waiting, *self._prefilling.not_begun()]
        self._prefixes.live_rows_take(self._ledger.size_bytes)
        progress = Progress(
            waiting=len(waiting),
            oldest_at=min((row.submitted_at for row in waiting), default=None),
            decoding=len(self._batch),
            step=self._pulse.status(),
            kv_bytes=self._live_bytes,
            ledger_bytes=self._ledger.size_bytes,
            prefix=self._prefixes.status(),
            kept_waiting=self._preemption.kept_waiting_rows,
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
            self._fail_all("the engine was stopped before the end")

    def _fail_all(self, message: str) -> None:
        now = time.monotonic()
        for row in list(self._roster.rows.values()):
            self._roster.fail(row, ErrorCode.SHUTTING_DOWN, message, now)


def _goes_on(_why: str) -> None:
    """A fault that costs nobody anything: what was tried is left undone."""
