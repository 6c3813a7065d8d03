"""Durations in buckets."""

from protocol.histogram import HistogramTally
from protocol.status import Histogram


def test_values_fall_into_their_buckets() -> None:
    """A value on a bound belongs below it, as Prometheus has it; above the last there is one bucket more."""
    tally = HistogramTally((1.0, 10.0))
    for value in (0.0, 1.0, 1.5, 10.0, 10.5, 1e9):
        tally.add(value)
    assert tally.snapshot() == Histogram(bounds=(1.0, 10.0), counts=(2, 2, 2), sum=0.0 + 1.0 + 1.5 + 10.0 + 10.5 + 1e9)


def test_a_value_may_count_several_times() -> None:
    """As for all tokens of one delta."""
    tally = HistogramTally((1.0,))
    tally.add(0.5, times=4)
    tally.add(2.0, times=0)
    assert tally.snapshot() == Histogram(bounds=(1.0,), counts=(4, 0), sum=2.0)


def test_a_snapshot_stays_as_it_is() -> None:
    """The heartbeat encodes it while the loop goes on."""
    tally = HistogramTally((1.0,))
    before = tally.snapshot()
    tally.add(0.5)
    assert before == Histogram(bounds=(1.0,), counts=(0, 0))
