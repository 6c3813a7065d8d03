"""A frontend process that watches its own event loop: when it was held, for how long, and what ran in its threads then.

Run by bench.loop_holds: the file for what was seen, then the frontend's own flags.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import msgspec
import uvloop

from frontend import main as frontend_main

_TICK_S: Final = 0.001
# A timer of a millisecond is late by up to two when nothing else happens.
_WORTH_NOTING_S: Final = 0.004
_SAMPLE_S: Final = 0.005


class Hold(NamedTuple):
    """The loop did not come round from began_s on for so long, in monotonic seconds.

    waited_s: of it, what one of the process's threads waited for a processor: other programs' doing.
    """

    began_s: float
    lasted_s: float
    waited_s: float = 0.0

    @property
    def own_s(self) -> float:
        """What the process itself has to answer for, at most."""
        return max(0.0, self.lasted_s - self.waited_s)


class Sample(NamedTuple):
    """What each thread was doing: the innermost function of ours, and the one it had called. At monotonic seconds."""

    at_s: float
    threads: dict[str, str]


class Seen(msgspec.Struct):
    """All of a process's life."""

    holds: list[Hold] = []
    samples: list[Sample] = []


class ProcessorWaits:
    """How long each of Python's threads was ready to run and had no processor, as Linux counts it."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._told_s: dict[int, float] = {}

    def longest_s(self) -> float:
        """Seconds since the last call, of the thread that waited longest; 0 where nobody counts."""
        longest_s = 0.0
        for thread in threading.enumerate():
            id_ = thread.native_id
            if id_ is not None:
                total_s = self._total_s(id_)
                longest_s = max(longest_s, total_s - self._told_s.get(id_, total_s))
                self._told_s[id_] = total_s
        return longest_s

    def _total_s(self, id_: int) -> float:
        try:
            if id_ not in self._files:
                self._files[id_] = os.open(f"/proc/self/task/{id_}/schedstat", os.O_RDONLY)
            return int(os.pread(self._files[id_], 100, 0).split()[1]) / 1e9
        except OSError:
            return 0.0


def watch_loop(loop: asyncio.AbstractEventLoop, holds: list[Hold]) -> None:
    """Notes each time that a timer of a millisecond comes late."""
    due_s = time.monotonic() + _TICK_S
    waits = ProcessorWaits()

    def tick() -> None:
        nonlocal due_s
        now_s = time.monotonic()
        waited_s = waits.longest_s()
        if now_s - due_s > _WORTH_NOTING_S:
            holds.append(Hold(due_s, now_s - due_s, waited_s))
        due_s = time.monotonic() + _TICK_S
        loop.call_later(_TICK_S, tick)

    loop.call_soon(tick)


def sample_threads(samples: list[Sample], stop: threading.Event) -> None:
    """Looks at all threads but its own now and then: what holds the interpreter lock is seen when it lets go."""
    own = threading.get_ident()
    while not stop.wait(_SAMPLE_S):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()  # noqa: SLF001  # Python has no public name for it
        found = {names.get(id_, "?"): place(frame) for id_, frame in frames.items() if id_ != own}
        samples.append(Sample(time.monotonic(), found))


def place(frame: FrameType) -> str:
    """`file:function` of the innermost frame of the frontend, and of the innermost one if that is another's."""
    innermost = _named(frame)
    ours: FrameType | None = frame
    while ours is not None and "/frontend/" not in ours.f_code.co_filename:
        ours = ours.f_back
    return innermost if ours is None or ours is frame else f"{_named(ours)} > {innermost}"


def _named(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_code.co_name}"


def main(arguments: Sequence[str]) -> int:
    """The frontend's process, with a watcher in its loop and one beside it."""
    path, is_sampled, *flags = arguments
    seen = Seen()
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop

    def watched_loop() -> asyncio.AbstractEventLoop:
        loop = make()
        watch_loop(loop, seen.holds)
        return loop

    uvloop.new_event_loop = watched_loop
    stop = threading.Event()
    if is_sampled == "sampled":
        threading.Thread(target=sample_threads, args=(seen.samples, stop), daemon=True).start()
    status = frontend_main.main(list(flags))
    stop.set()
    Path(path).write_bytes(msgspec.json.encode(seen))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
