"""The loop: hear, admit, prefill, decode, tell. The only thread that touches MLX; owns the schedule."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, NamedTuple, assert_never

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

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
from engine.prefill_queue import PrefillQueue
from engine.pulse import Pulse
from engine.report import Progress, Reporter
from engine.retire import Roster, Tally
from engine.row import Row, RowKey
from engine.sampling.masks import GrammarMasks
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

# How long an idle loop sleeps at most before it looks at leases and at the stop flag.
IDLE_WAIT_MS: Final = 250
# How often a row says how far its prompt is computed.
PROGRESS_EVERY_S: Final = 1.0
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
        self._kinds = parts.cache_plan.kinds(parts.model)
        self._batch = Batch(self._kinds, parts.weights_bytes)
        self._masks = GrammarMasks(parts.grammars.tokenizer)
        self._prefilling = PrefillQueue()
        self._ready: list[Group] = []
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
        for group in self._ready:
            group.leave(ended)
        self._ready = [group for group in self._ready if group.rows]
        self._batch.leave(ended)
        ended.clear()

    # --- admit and prefill ----------------------------------------------------------------------

    def _admit(self) -> None:
        self._intake.settle_grammars()
        self._remove_ended()
        live = len(self._prefilling) + sum(len(group.rows) for group in self._ready) + len(self._batch)
        while self._admission.can_admit(live):
            for row in self._admission.admit():
                self._prefilling.add(row)
                live += 1

    def _prefill(self) -> None:
        """As long as it takes while nobody waits for a step; else one gap, and of a long row one chunk."""
        gap = Gap(self._parts.chunk_tokens, self._parts.prompt_concurrency)
        while len(self._prefilling) and not gap.is_spent(self._prefilling.head, len(self._batch) > 0):
            rows = self._rows_to_prefill(gap)
            is_waited_for = len(self._batch) > 0 or bool(self._ready)
            self._board.turn_began()
            with self._contained(rows, ErrorCode.PREFILL_FAILED):
                tokens = self._prefill_chunk(rows[0]) if len(rows) == 1 else self._prefill_together(rows)
                if is_waited_for:
                    gap.charge(tokens)
            self._board.turn_ended()
            self._tell()
            self._hear(0)
            self._admit()
            self._publish_when_due()

    def _rows_to_prefill(self, gap: Gap) -> list[Row]:
        """The row whose turn it is, or the short ones that go as one chunk."""
        now = time.monotonic()
        can_share = self._kinds is not None and all(kind.prefills_together for kind in self._kinds)
        head = self._prefilling.head
        alike = takewhile(lambda row: row.adapter is head.adapter, self._prefilling.leaders())
        rows = (gap.rows_together(alike) if can_share else []) or [head]
        for row in rows:
            row.prefill_began_at = row.prefill_began_at or now
        return rows

    def _prefill_together(self, rows: list[Row]) -> int:
        """Returns the tokens forwarded, padding included. The last prompt tokens ride in the step that follows."""
        assert self._kinds is not None
        group = prefill.launch_together(self._adapters.model_for(rows[0].adapter), self._kinds, rows)
        self._read_beside_chunk()
        prefill.wait_for_chunk(group.caches)
        self._tally.prompt_tokens += sum(len(row.to_prefill) for row in rows)
        self._make_ready(group, [self._prefilling.take(row) for row in rows])
        return len(rows) * group.layout.width

    def _prefill_chunk(self, row: Row) -> int:
        """Returns the tokens forwarded; a row that is through becomes ready, or ends at its first token."""
        if row.caches is None:
            row.caches = make_prompt_cache(self._parts.model)
        tokens = prefill.launch_chunk(self._adapters.model_for(row.adapter), row, self._parts.chunk_tokens)
        if tokens:
            self._read_beside_chunk()
            prefill.wait_for_chunk(row.caches)
            prefill.quantize(self._parts.cache_plan, row.caches, row.prefilled)
        self._tally.prompt_tokens += tokens
        if row.remaining_prefill_tokens > 1:
            self._allocator.chunk_done()
            self._note_progress(row, time.monotonic())
            return tokens
        self._tally.prompt_tokens += 1
        family = self._prefilling.take(row)
        self._roster.tell_prompt(row, family)
        if row.prefilled and (len(family) > 1 or self._has_company(row)):
            # A step follows within this gap: the last prompt token rides in it, without a forward of its own.
            # Not that of a prompt of one token: its caches are empty, and those cannot be stacked.
            self._make_ready(Group.of_one(self._kinds, row, row.to_prefill[-1]), [family])
        else:
            for each in family:
                self._begin_alone(each)
        return tokens + 1

    def _note_progress(self, row: Row, now: float) -> None:
        """Whoever waits for a long prompt is told how far it is, but not after every chunk."""
        if now - row.progress_at >= PROGRESS_EVERY_S:
            row.progress_at = now
            self._outbox.add_progress(row)

    def _has_company(self, row: Row) -> bool:
        """Whether a step of other rows will follow this prefill, and this row needs more than one token."""
        return row.limit > 1 and bool(len(self._batch) or self._ready or len(self._prefilling))

    def _make_ready(self, group: Group, families: list[list[Row]]) -> None:
        """The group waits to join, each of its rows with the siblings that go on from its prompt."""
        with self._contained([row for family in families for row in family], ErrorCode.PREFILL_FAILED):
            group.fork(families)
            self._ready.append(group)

    def _begin_alone(self, row: Row) -> None:
        """Reads the row's first token from a forward of its own."""
        with self._contained([row], ErrorCode.PREFILL_FAILED):
            if row.caches is None:
                row.caches = make_prompt_cache(self._parts.model)
            token = prefill.first_token(self._adapters.model_for(row.adapter), row, self._masks)
            prefill.quantize(self._parts.cache_plan, row.caches, row.prefilled)
            if self._roster.take_token(row, token, time.monotonic()):
                self._ready.append(Group.of_one(self._kinds, row, token))

    def _read_beside_chunk(self) -> None:
        """Tells what the step before this chunk has sampled: it is done long before the chunk is."""
        for group in self._batch.groups:
            with self._contained(group.rows, ErrorCode.DECODE_FAILED):
                self._take(Launched(group, group.register))
        self._tell()

    # --- decode ---------------------------------------------------------------------------------

    def _decode(self) -> None:
        if self._ready:
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
        joiners, self._ready = self._ready, []
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
        prefilling = sum(cache.nbytes for row in self._prefilling for cache in row.caches or ())
        kv_bytes = prefilling + self._batch.allocated_bytes + sum(group.allocated_bytes for group in self._ready)
        progress = Progress(
            waiting=len(self._admission.waiting),
            oldest_at=min((row.submitted_at for row in self._admission.waiting), default=None),
            decoding=len(self._batch),
            step=self._pulse.status(),
            kv_bytes=kv_bytes,
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
