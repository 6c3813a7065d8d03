"""The sliding window's ring: its mask, its buffers, and mlx-lm's own batch beside it."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchRotatingKVCache, RotatingKVCache

from engine.cache.layout import Layout
from engine.cache.rotating import RotatingBatch, RotatingKind
from tests.engine.cache.twins import DIMENSION, WINDOW, drawn, filled

KIND = RotatingKind(WINDOW)


def _solo(length: int) -> RotatingKVCache:
    return filled(lambda: RotatingKVCache(WINDOW), length, length)


def _stacked(lengths: list[int]) -> RotatingBatch:
    layout = Layout.side_by_side([Layout([0], length) for length in lengths])
    return KIND.stack([_solo(length) for length in lengths], layout)


def _step(ours: RotatingBatch, theirs: BatchRotatingKVCache, seed: int) -> list[mx.array]:
    """What each row may see after one token, by ours and by theirs, as keys in temporal order."""
    rows = ours.keys.shape[0]
    token = drawn((rows, 2, 1, DIMENSION), seed)
    seen: list[mx.array] = []
    for cache in (ours, theirs):
        mask = cache.make_mask(1, window_size=WINDOW)
        keys, _ = cache.update_and_fetch(token, token)
        visible = mx.ones((rows, keys.shape[2])) if mask is None else mask.reshape(rows, -1)
        hidden = mx.where(visible[:, None, :, None], keys, mx.inf)
        seen.append(mx.sort(hidden, axis=2))
    ours.layout.advance(1)
    width = min(each.shape[2] for each in seen)
    return [each[:, :, :width] for each in seen]


@pytest.mark.parametrize("lengths", [[3, 5], [20, 2, 9], [8, 7], [30, 30]])
def test_rows_see_what_the_oracles_see(lengths: list[int]) -> None:
    """C1, C3: at each step over three wraps the visible keys of each row are those of mlx-lm's batch."""
    ours = _stacked(lengths)
    theirs = BatchRotatingKVCache.merge([_solo(length) for length in lengths])
    for seed in range(3 * WINDOW):
        mine, oracles = _step(ours, theirs, seed)
        assert mx.array_equal(mine, oracles).item()


def test_extend_equals_the_oracles() -> None:
    """C2: a join into a wrapped ring leaves each row the keys that mlx-lm's extend leaves it."""
    ours = _stacked([12, 3])
    theirs = BatchRotatingKVCache.merge([_solo(12), _solo(3)])
    for seed in range(5):
        _step(ours, theirs, seed)
    joined = Layout.side_by_side([ours.layout, Layout([0], 6)])
    ours = KIND.stack([ours, _solo(6)], joined)
    theirs.extend(BatchRotatingKVCache.merge([_solo(6)]))
    for seed in range(20, 20 + 2 * WINDOW):
        mine, oracles = _step(ours, theirs, seed)
        assert mx.array_equal(mine, oracles).item()


def test_filter_trims_what_no_row_holds() -> None:
    """When the only row that fills the window leaves, the others' ring is as narrow as their longest."""
    batch = _stacked([20, 3, 5])
    kept = KIND.keep(batch, mx.array([1, 2]), batch.layout.kept([1, 2]))
    assert kept.ring.filled == 5
    assert kept.keys.shape[2] == WINDOW
    assert kept.make_mask(1) is not None


def test_a_row_may_be_kept_twice() -> None:
    """A prompt of several choices: both copies of a row of a wrapped ring hold what it held."""
    batch = _stacked([12, 3])
    for seed in range(3):
        batch.update_and_fetch(drawn((2, 2, 1, DIMENSION), seed), drawn((2, 2, 1, DIMENSION), seed))
        batch.layout.advance(1)
    row = KIND.alone(batch, 1)
    forked = KIND.keep(batch, mx.array([0, 1, 1]), batch.layout.kept([0, 1, 1]))
    assert forked.layout.pads == [0, 9, 9]
    for index in (1, 2):
        assert mx.array_equal(KIND.alone(forked, index).keys, row.keys).item()


def test_full_rows_need_no_mask() -> None:
    """B8: once every row holds a whole window, all columns are for all, and no array is built."""
    batch = _stacked([20, 9])
    assert batch.make_mask(1, window_size=WINDOW) is None
    assert _stacked([4, 4]).make_mask(1, window_size=WINDOW) is None
    assert _stacked([20, 6]).make_mask(1, window_size=WINDOW) is not None


def test_a_narrower_window_than_the_ring_is_honoured() -> None:
    """A model may attend to fewer tokens than the ring holds."""
    batch = _stacked([20, 6])
    mask = batch.make_mask(1, window_size=3)
    assert mask is not None
    assert mask.sum(axis=-1).flatten().tolist() == [3, 3]


def test_the_mask_is_built_once_a_forward() -> None:
    """All layers of a window share ring and mask."""
    layout = Layout.side_by_side([Layout([0], 6), Layout([0], 3)])
    layers = [KIND.stack([_solo(6), _solo(3)], layout) for _ in range(2)]
    assert layers[0].make_mask(1) is layers[1].make_mask(1)


def test_several_tokens_are_refused() -> None:
    """A ring overwrites what an earlier token of the same forward would still need."""
    batch = _stacked([6, 3])
    with pytest.raises(ValueError, match="one token"):
        batch.make_mask(2)
    with pytest.raises(ValueError, match="one token"):
        batch.update_and_fetch(mx.zeros((2, 2, 2, DIMENSION)), mx.zeros((2, 2, 2, DIMENSION)))


def test_buffers_grow_up_to_the_window() -> None:
    """A wide window's buffers grow in whole steps and end at the window, no column lost."""
    kind = RotatingKind(300)
    layout = Layout.side_by_side([Layout([0], 250), Layout([0], 10)])
    batch = kind.stack([filled(lambda: RotatingKVCache(300), length, length, 50) for length in (250, 10)], layout)
    assert batch.keys.shape[2] == 256
    for seed in range(60):
        batch.update_and_fetch(drawn((2, 2, 1, DIMENSION), seed), drawn((2, 2, 1, DIMENSION), seed))
        batch.layout.advance(1)
    assert batch.keys.shape[2] == 300
    assert kind.alone(batch, 1).offset == 70
    assert mx.array_equal(kind.alone(batch, 1).keys[..., -1:, :], drawn((2, 2, 1, DIMENSION), 59)[1:2]).item()
