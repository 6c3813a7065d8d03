"""Step times and decode gaps."""

from engine.pulse import Pulse
from protocol.status import Histogram


def filled(histogram: Histogram) -> dict[float, int]:
    """The buckets that hold something, by their upper bound."""
    return {bound: count for bound, count in zip(histogram.bounds, histogram.counts, strict=False) if count}


def test_a_gap_holds_the_prefill_between_two_steps() -> None:
    """From one read to the next: step of 10 ms, 80 ms of prefill, step of 10 ms."""
    pulse = Pulse()
    pulse.step_done(1.000, 1.010, has_rows=True)
    pulse.step_done(1.090, 1.099, has_rows=True)
    status = pulse.status()
    assert (status.count, round(status.last_ms, 6)) == (2, 9.0)
    assert filled(status.times_ms) == {20.0: 1, 10.0: 1}
    assert filled(status.gaps_ms) == {100.0: 1}
    assert round(status.gaps_ms.sum, 6) == 89.0


def test_nobody_waits_over_an_idle_time() -> None:
    """After a step that left no row, the pause until the next one is no gap."""
    pulse = Pulse()
    pulse.step_done(1.0, 1.01, has_rows=False)
    pulse.step_done(60.0, 60.01, has_rows=True)
    assert filled(pulse.status().gaps_ms) == {}
    assert pulse.status().count == 2


def test_a_fresh_pulse_has_buckets_and_no_values() -> None:
    """A reader that takes rates sees zeros, not nothing."""
    status = Pulse().status()
    assert (status.count, status.age_ms, sum(status.times_ms.counts), sum(status.gaps_ms.counts)) == (0, 0.0, 0, 0)
    assert len(status.times_ms.counts) == len(status.times_ms.bounds) + 1
