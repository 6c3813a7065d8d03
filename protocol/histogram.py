"""Counting durations into fixed buckets, as cheap as one search in a short list."""

from bisect import bisect_left

from protocol.status import Histogram


class HistogramTally:
    """Since its making. bounds: upper ends of the buckets, ascending, in any unit; one more bucket lies above them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Counts a value, in the bounds' unit."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def snapshot(self) -> Histogram:
        """What was counted so far; later values do not change it."""
        return Histogram(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)
