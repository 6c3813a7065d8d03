"""The decode loop's pulse: how many steps, how long each takes, and how long running rows wait from one to the next."""

from typing import Final

from protocol.histogram import HistogramTally
from protocol.status import StepStatus

BUCKETS_MS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0)


class Pulse:
    """Since the start. All moments are monotonic seconds."""

    def __init__(self) -> None:
        self.steps = 0
        self._last_ms = 0.0
        self._times_ms = HistogramTally(BUCKETS_MS)
        self._gaps_ms = HistogramTally(BUCKETS_MS)
        self._waited_since: float | None = None

    def step_done(self, began_at: float, now: float, *, has_rows: bool) -> None:
        """A step has been read. has_rows: rows are left who wait for the next one."""
        self.steps += 1
        self._last_ms = (now - began_at) * 1e3
        self._times_ms.add(self._last_ms)
        if self._waited_since is not None:
            self._gaps_ms.add((now - self._waited_since) * 1e3)
        self._waited_since = now if has_rows else None

    def status(self) -> StepStatus:
        """For the status; the age of the running turn is the board's to fill in."""
        return StepStatus(
            count=self.steps,
            last_ms=self._last_ms,
            times_ms=self._times_ms.snapshot(),
            gaps_ms=self._gaps_ms.snapshot(),
        )
