"""Which rows share a group: the cost rule. Pure policy over lengths and bytes; owns no row and no cache.

A step streams every weight once per group, and of each row as many columns as its group is wide.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

# A partition that is this close to the best one is kept: moving rows copies their caches.
_TOLERANCE: Final = 1.1


# By how much less the weights count, in turn, while a partition takes too many bytes.
_WEIGHT_SHARES: Final = (1, 8, 64, 512, 1 << 60)


class Room:
    """What groups take. layer_bytes: of one row, each layer's, by its group's width in columns."""

    def __init__(self, layer_bytes: Callable[[int], Sequence[int]]) -> None:
        self._layer_bytes = cache(layer_bytes)

    def of(self, groups: Sequence[Sequence[int]]) -> int:
        """groups: the lengths of each group's rows, in tokens. The largest layer of one of them counts twice."""
        layers = [[len(group) * size for size in self._layer_bytes(max(group))] for group in groups if group]
        return sum(map(sum, layers)) + max((max(each, default=0) for each in layers), default=0)


class StepCost:
    """Bytes that a step reads. row_bytes: of one row over all layers, by its group's width in columns."""

    def __init__(self, weights_bytes: int, row_bytes: Callable[[int], int]) -> None:
        self._weights_bytes = weights_bytes
        self._row_bytes = cache(row_bytes)

    def of(self, groups: Sequence[Sequence[int]]) -> int:
        """groups: the lengths of each group's rows, in tokens."""
        return sum(self._one(max(group), len(group)) for group in groups if group)

    def best(self, lengths: Sequence[int]) -> list[list[int]]:
        """The cheapest partition, as indices into `lengths`, wide groups first.

        Only neighbours in order of length are tried together: some cheapest partition is made of such.
        """
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        cheapest: list[int] = [0]
        starts: list[int] = []
        for stop in range(1, len(order) + 1):
            costs = [cheapest[start] + self._one(lengths[order[start]], stop - start) for start in range(stop)]
            starts.append(min(range(stop), key=costs.__getitem__))
            cheapest.append(costs[starts[-1]])
        groups: list[list[int]] = []
        stop = len(order)
        while stop:
            groups.insert(0, order[starts[stop - 1] : stop])
            stop = starts[stop - 1]
        return groups

    def best_within(self, lengths: Sequence[int], room: Room, most_bytes: int) -> list[list[int]]:
        """The cheapest partition of those found by letting weights count for less and less, until one has room.

        The last of them, where rows share a group only if they are as long, takes least; it need not have room.
        """
        partition: list[list[int]] = []
        for share in _WEIGHT_SHARES:
            partition = StepCost(self._weights_bytes // share, self._row_bytes).best(lengths)
            if room.of([[lengths[index] for index in group] for group in partition]) <= most_bytes:
                break
        return partition

    def is_worth(self, better: Sequence[Sequence[int]], than: Sequence[Sequence[int]]) -> bool:
        """Whether a partition is enough cheaper to move rows for."""
        return self.of(better) * _TOLERANCE < self.of(than)

    def _one(self, width: int, rows: int) -> int:
        return self._weights_bytes + rows * self._row_bytes(width)
