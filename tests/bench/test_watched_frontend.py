"""bench.watched_frontend: a held loop is seen with its length, and a thread with the function it runs."""

import asyncio
import sys
import threading
import time
from types import FrameType

import uvloop

from bench.watched_frontend import Hold, Sample, place, sample_threads, watch_loop
from frontend.request_body import decoded


class _Holds(list[Hold]):
    """Tells when there is one."""

    def __init__(self, is_seen: asyncio.Event) -> None:
        self._is_seen = is_seen

    def append(self, hold: Hold) -> None:
        super().append(hold)
        self._is_seen.set()


def test_a_hold_is_seen() -> None:
    """With when it began and how long it lasted."""
    is_seen = asyncio.Event()
    holds = _Holds(is_seen)

    async def held() -> None:
        watch_loop(asyncio.get_running_loop(), holds)
        await asyncio.sleep(0)
        until_s = time.monotonic() + 0.05
        while time.monotonic() < until_s:
            pass
        await is_seen.wait()

    began_s = time.monotonic()
    uvloop.run(held())
    hold = max(holds, key=lambda hold: hold.lasted_s)
    assert 0.04 <= hold.lasted_s <= time.monotonic() - began_s
    assert began_s <= hold.began_s


def test_a_place_is_ours_and_what_it_has_called() -> None:
    """The frontend's own function first."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event == "call" and frame.f_code.co_name == "json_shape":
            seen.append(place(frame))

    sys.setprofile(note)
    try:
        decoded(b"{}")
    finally:
        sys.setprofile(None)
    assert seen == ["frontend/request_body.py:json_shape"]
    assert place(sys._getframe()) == "bench/test_watched_frontend.py:test_a_place_is_ours_and_what_it_has_called"


def test_threads_are_sampled_by_name() -> None:
    """All but the one that looks."""
    samples: list[Sample] = []
    stop, done = threading.Event(), threading.Event()
    worker = threading.Thread(target=done.wait, name="worker")
    sampler = threading.Thread(target=sample_threads, args=(samples, stop), name="sampler")
    worker.start()
    sampler.start()
    while len(samples) < 2:
        pass
    stop.set()
    done.set()
    for thread in (worker, sampler):
        thread.join()
    assert "worker" in samples[0].threads
    assert "sampler" not in samples[0].threads
