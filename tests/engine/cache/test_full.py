"""The plain kind: stack, keep, alone, growth; bytes stay the rows' own."""

from typing import Any

import mlx.core as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import BatchKVCache, KVCache

from engine.cache.columns import STEP_TOKENS
from engine.cache.full import FullBatch, FullKind
from engine.cache.layout import Layout

HEADS, DIMENSION = 2, 4
KIND = FullKind()


def _filled(length: int, seed: int) -> KVCache:
    cache = KVCache()
    shape = (1, HEADS, length, DIMENSION)
    keys, values = (mx.random.normal(shape, key=mx.random.key(2 * seed + part)) for part in (0, 1))
    cache.update_and_fetch(keys, values)
    return cache


def _stacked(caches: list[KVCache]) -> FullBatch:
    return KIND.stack(caches, Layout.side_by_side([Layout([0], cache.offset) for cache in caches]))


def _same(left: Any, right: Any) -> bool:
    return left.offset == right.offset and all(
        mx.array_equal(one[..., : left.offset, :], other[..., : left.offset, :]).item()
        for one, other in ((left.keys, right.keys), (left.values, right.values))
    )


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.data())
def test_each_row_comes_back_as_it_went_in(lengths: list[int], data: st.DataObject) -> None:
    """C4: over any sequence of step, join and leave, each row alone equals a cache that did the same alone."""
    solo = [_filled(length, seed) for seed, length in enumerate(lengths)]
    twins = [_filled(length, seed) for seed, length in enumerate(lengths)]
    batch: FullBatch = _stacked(solo)
    for turn in range(data.draw(st.integers(1, 6))):
        action = data.draw(st.sampled_from(["step", "join", "leave"]))
        rows = len(batch.layout.pads)
        if action == "step":
            new = mx.random.normal((rows, HEADS, 1, DIMENSION), key=mx.random.key(1_000 + turn))
            batch.update_and_fetch(new, -new)
            batch.layout.advance(1)
            for index, twin in enumerate(twins):
                twin.update_and_fetch(new[index : index + 1], -new[index : index + 1])
        elif action == "join":
            length = data.draw(st.integers(1, 30))
            joiner = _filled(length, 100 + turn)
            batch = KIND.stack([batch, joiner], Layout.side_by_side([batch.layout, Layout([0], length)]))
            twins.append(_filled(length, 100 + turn))
        elif rows > 2:
            keep = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=2, max_size=rows - 1)))
            batch = KIND.keep(batch, mx.array(keep), batch.layout.kept(keep))
            twins = [twins[index] for index in keep]
    for index, twin in enumerate(twins):
        assert _same(KIND.alone(batch, index), twin)


def test_filter_equals_the_oracles() -> None:
    """B7: after the widest row left, live columns and pads equal mlx-lm's own filter."""
    caches = [_filled(length, length) for length in (20, 5, 9)]
    ours = _stacked(caches)
    theirs = BatchKVCache.merge(caches)
    theirs.filter(mx.array([1, 2]))
    kept = KIND.keep(ours, mx.array([1, 2]), ours.layout.kept([1, 2]))
    assert kept.layout.pads == theirs.left_padding.tolist()
    assert kept.layout.width == theirs._idx
    assert mx.array_equal(kept.keys[..., : kept.layout.width, :], theirs.keys[..., : theirs._idx, :]).item()


def test_padding_is_zero() -> None:
    """Masked columns hold zeros: a NaN there would pass through the attention sum."""
    batch = _stacked([_filled(4, 1), _filled(2, 2)])
    assert mx.all(batch.keys[1, :, :2, :] == 0).item()


def test_stack_leaves_room_for_the_next_step() -> None:
    """A join does not make the very next step grow the buffers again."""
    batch = _stacked([_filled(STEP_TOKENS, 1), _filled(3, 2)])
    assert batch.keys.shape[2] == 2 * STEP_TOKENS


def test_buffers_grow_by_whole_steps_and_keep_their_columns() -> None:
    """Growth past the capacity keeps every written column, and more than one token may be written."""
    batch = _stacked([_filled(STEP_TOKENS - 1, 1), _filled(3, 2)])
    before = KIND.alone(batch, 1)
    new = mx.ones((2, HEADS, 3, DIMENSION))
    keys, _ = batch.update_and_fetch(new, new)
    batch.layout.advance(3)
    assert keys.shape[2] == STEP_TOKENS + 2
    assert batch.keys.shape[2] % STEP_TOKENS in (0, STEP_TOKENS - 1)
    after = KIND.alone(batch, 1)
    assert mx.array_equal(after.keys[:, :, :3, :], before.keys[:, :, :3, :]).item()
    assert mx.all(after.keys[:, :, 3:6, :] == 1).item()


def test_a_row_alone_shares_no_array_with_the_batch() -> None:
    """Writing to the row's solo cache must not change the batch it left."""
    batch = _stacked([_filled(4, 1), _filled(4, 2)])
    before = mx.array(batch.keys)
    solo = KIND.alone(batch, 0)
    solo.update_and_fetch(mx.ones((1, HEADS, 1, DIMENSION)), mx.ones((1, HEADS, 1, DIMENSION)))
    mx.eval(solo.keys)
    assert mx.array_equal(batch.keys, before).item()


def test_bytes_count_capacity() -> None:
    """Bytes are those of both buffers, free columns included."""
    batch = _stacked([_filled(4, 1), _filled(4, 2)])
    assert batch.nbytes == 2 * 2 * HEADS * STEP_TOKENS * DIMENSION * 4
