"""The cost rule: when padding costs more than streaming the weights once more."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grouping import StepCost


def _cost(weights_bytes: int) -> StepCost:
    return StepCost(weights_bytes, lambda width: width)


@pytest.mark.parametrize(
    ("weights_bytes", "lengths", "best"),
    [
        (1_000_000, [4_000, 100, 100, 100], [[0, 1, 2, 3]]),  # the weights outweigh all padding
        (11_699, [4_000, 100, 100, 100], [[0], [1, 2, 3]]),  # padding: 3 x 3,900 columns
        (11_701, [4_000, 100, 100, 100], [[0, 1, 2, 3]]),
        (50, [100, 4_000, 101, 3_999], [[1, 3], [2, 0]]),
        (0, [5, 5, 7], [[2], [0], [1]]),
        (10, [9], [[0]]),
    ],
)
def test_groups_split_where_padding_outweighs_the_weights(
    weights_bytes: int, lengths: list[int], best: list[list[int]]
) -> None:
    """The partition reads the fewest bytes a step."""
    cost = _cost(weights_bytes)
    assert cost.of([[lengths[index] for index in group] for group in cost.best(lengths)]) == cost.of(
        [[lengths[index] for index in group] for group in best]
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 150))
def test_no_partition_is_cheaper(lengths: list[int], weights_bytes: int) -> None:
    """Against every partition there is."""
    cost = _cost(weights_bytes)
    best = cost.of([[lengths[index] for index in group] for group in cost.best(lengths)])
    assert best == min(cost.of(partition) for partition in _partitions(lengths))


@given(st.lists(st.integers(1, 9_999), min_size=1, max_size=32), st.integers(0, 100_000))
def test_every_row_has_one_group(lengths: list[int], weights_bytes: int) -> None:
    """None is lost, none doubled; groups come from wide to narrow."""
    groups = _cost(weights_bytes).best(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    widths = [max(lengths[index] for index in group) for group in groups]
    assert all(wide >= narrow for wide, narrow in pairwise(widths))


def test_a_small_gain_moves_nobody() -> None:
    """Moving rows copies their caches: under a tenth it is not worth it."""
    cost = _cost(1_000)
    assert not cost.is_worth([[500], [100]], than=[[500, 100]])
    assert cost.is_worth([[9_000], [100]], than=[[9_000, 100]])


def _partitions(items: list[int]) -> list[list[list[int]]]:
    if not items:
        return [[]]
    head, *tail = items
    partitions: list[list[list[int]]] = []
    for rest in _partitions(tail):
        partitions.append([[head], *rest])
        partitions += [[*rest[:at], [head, *rest[at]], *rest[at + 1 :]] for at in range(len(rest))]
    return partitions
