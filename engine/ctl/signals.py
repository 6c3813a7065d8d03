"""Signals as readable bytes, for a loop that waits on descriptors. Decides nothing about them."""

import os
import signal
from types import FrameType
from typing import Final, Self

STOP_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class SignalPipe:
    """While entered, stop signals and SIGCHLD only make `descriptor` readable. Main thread only."""

    def __init__(self) -> None:
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Self:
        # The handlers come first: without one a signal still has its default effect.
        self._old_handlers = {number: signal.signal(number, _noted) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        self._old_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._write_end)

    def stops_heard(self) -> list[signal.Signals]:
        """The stop signals since the last call, in order."""
        try:
            numbers = os.read(self.descriptor, 4_096)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number in STOP_SIGNALS]


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has it already."""
