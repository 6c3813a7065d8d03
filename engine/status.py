"""What the loop tells and the heartbeat pushes: a board of values, each replaced by one assignment.

Owns the numbers between two pushes; sends nothing and measures nothing on the device.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from protocol.messages import PROTOCOL_VERSION, Batching, Epoch
from protocol.status import (
    Counters,
    EngineStatus,
    FrontendStatus,
    MemoryStatus,
    ModelStatus,
    Phase,
    PrefixStatus,
    RowCounts,
    StepStatus,
    TokenStatus,
)

# Tokens per second are an average over this long.
RATE_WINDOW_S: Final = 3.0
# Bounds the history if somebody reads far more often than the heartbeat does.
_MAX_SAMPLES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSnapshot:
    """The loop's own numbers after one turn. step: without an age; totals: tokens since start."""

    rows: RowCounts = field(default_factory=RowCounts)
    step: StepStatus = field(default_factory=StepStatus)
    prompt_total: int = 0
    generated_total: int = 0
    drafted_total: int = 0
    accepted_total: int = 0
    memory: MemoryStatus = field(default_factory=MemoryStatus)
    counters: Counters = field(default_factory=Counters)
    prefix: PrefixStatus = field(default_factory=PrefixStatus)
    frontends: tuple[FrontendStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class _PhaseNow:
    phase: Phase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Served:
    model: ModelStatus
    batching: Batching


class _Sample(NamedTuple):
    at_s: float
    generated_total: int


class StatusBoard:
    """Written by the main thread (the loop), read by the heartbeat.

    Every write is one attribute assignment of an immutable value, so a reader needs no lock and never sees half a
    picture. clock: monotonic seconds.
    """

    def __init__(self, epoch: Epoch, restarts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.epoch = epoch
        self._restarts = restarts
        self._clock = clock
        self._started_s = clock()
        self._phase = _PhaseNow("starting")
        self._served: _Served | None = None
        self._snapshot = LoopSnapshot()
        self._adapters: tuple[str, ...] = ()
        self._turn_began_s: float | None = None
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)

    def set_phase(self, phase: Phase, detail: str = "") -> None:
        """detail: one line for people, such as what is being loaded or the last error."""
        self._phase = _PhaseNow(phase, detail)

    def set_model(self, model: ModelStatus, batching: Batching) -> None:
        """Names what is served; known once the model is loaded."""
        self._served = _Served(model, batching)

    def set_adapters(self, names: tuple[str, ...]) -> None:
        """Names the mounted adapters."""
        self._adapters = names

    def publish(self, snapshot: LoopSnapshot) -> None:
        """Replaces the loop's numbers."""
        self._snapshot = snapshot

    def turn_began(self) -> None:
        """The loop starts a piece of device work; from now on its age counts against the step limit."""
        self._turn_began_s = self._clock()

    def turn_ended(self) -> None:
        """The loop is idle or between two pieces."""
        self._turn_began_s = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A piece of device work outside the loop: from its beginning to its end."""
        self.turn_began()
        yield
        self.turn_ended()

    @property
    def turn_age_s(self) -> float:
        """Seconds since the running turn began; 0 when idle."""
        began_s = self._turn_began_s
        return 0.0 if began_s is None else self._clock() - began_s

    def status(self) -> EngineStatus:
        """The whole picture now. Called by one thread only: it keeps the history behind tokens per second."""
        phase, served, snapshot = self._phase, self._served, self._snapshot
        now_s = self._clock()
        return EngineStatus(
            epoch=self.epoch,
            protocol_version=PROTOCOL_VERSION,
            pid=os.getpid(),
            phase=phase.phase,
            phase_detail=phase.detail,
            uptime_s=now_s - self._started_s,
            restarts=self._restarts,
            model=served.model if served else None,
            batching=served.batching if served else None,
            rows=snapshot.rows,
            step=msgspec.structs.replace(snapshot.step, age_ms=self.turn_age_s * 1_000),
            tokens=TokenStatus(
                prompt_total=snapshot.prompt_total,
                generated_total=snapshot.generated_total,
                generated_per_s=self._generated_per_s(now_s, snapshot.generated_total),
                drafted_total=snapshot.drafted_total,
                accepted_total=snapshot.accepted_total,
            ),
            memory=snapshot.memory,
            counters=snapshot.counters,
            frontends=snapshot.frontends,
            adapters=self._adapters,
            prefix=snapshot.prefix,
        )

    def _generated_per_s(self, now_s: float, generated_total: int) -> float:
        """Tokens per second since the newest sample that is at least RATE_WINDOW_S old, or the oldest there is."""
        samples = self._samples
        samples.append(_Sample(now_s, generated_total))
        while len(samples) > 2 and samples[1].at_s <= now_s - RATE_WINDOW_S:
            samples.popleft()
        oldest = samples[0]
        elapsed_s = now_s - oldest.at_s
        return (generated_total - oldest.generated_total) / elapsed_s if elapsed_s > 0 else 0.0
