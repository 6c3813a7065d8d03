"""Notices when a stream has been silent for too long: one timer per stream, moved only when it fires.

Owns the timer; what is done about the silence is the caller's.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType


class Silence:
    """Within its block, calls `notice` after each limit_s seconds without a broken(); never when limit_s is 0."""

    def __init__(self, limit_s: float, notice: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._notice = notice
        self._loop = asyncio.get_running_loop()
        self._broken_at_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Silence":
        self._wait_until(self._broken_at_s + self._limit_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def broken(self) -> None:
        """Something was sent: the silence begins anew."""
        self._broken_at_s = self._loop.time()

    def _wait_until(self, when_s: float) -> None:
        if self._limit_s > 0:
            self._timer = self._loop.call_at(when_s, self._fire)

    def _fire(self) -> None:
        due_s = self._broken_at_s + self._limit_s
        if self._loop.time() >= due_s:
            self._notice()
            due_s = self._loop.time() + self._limit_s
        self._wait_until(due_s)
