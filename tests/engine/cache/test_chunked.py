"""The chunked kind: who sees what at the ends of chunks, and what is dropped when."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache

from engine.cache.chunked import ChunkedBatch, ChunkedKind, chunk_mask, drop_ended_chunks
from engine.cache.layout import Layout
from tests.engine.cache.twins import CLOSE, DIMENSION, WINDOW, Together, drawn, filled


def _together(size: int, lengths: list[int]) -> Together:
    batch = Together(ChunkedKind(size), lambda: ChunkedKVCache(size))
    batch.join(lengths)
    return batch


def test_each_row_sees_its_own_chunk_at_every_step() -> None:
    """The mask, row by row and column by column, over three chunks; none is built where all see all."""
    lengths = [3, 8, 13, 16]
    batch = _together(WINDOW, lengths)
    assert isinstance(batch.cache, ChunkedBatch)
    for step in range(3 * WINDOW):
        mask = chunk_mask(batch.cache, 1)
        seen = [(length + step) % WINDOW + 1 for length in lengths]
        columns = min(max(lengths) + step + 1, WINDOW)
        if mask is None:
            assert seen == [columns] * len(lengths)
        else:
            assert isinstance(mask, mx.array)
            assert mask.shape == (4, 1, 1, columns)
            assert mask.sum(axis=-1).flatten().tolist() == seen
        batch.step()


@pytest.mark.parametrize(
    ("written", "tokens", "expected"),
    [
        (0, 5, "causal"),
        (0, 8, "causal"),
        (3, 1, None),
        (7, 1, None),
        (16, 1, "array"),
        (6, 4, "array"),
        (0, 9, "array"),
    ],
)
def test_a_row_alone_gets_an_array_only_across_the_end_of_a_chunk(
    written: int, tokens: int, expected: str | None
) -> None:
    """Within one chunk attention is plain, which devices have faster kernels for."""
    mask = chunk_mask(filled(lambda: ChunkedKVCache(WINDOW), written, 1), tokens)
    assert expected == ("array" if isinstance(mask, mx.array) else mask)


def test_what_is_dropped_is_what_nobody_sees() -> None:
    """The newest token's chunk stays; a cache without tokens, or a batch, is left alone."""
    cache = ChunkedKVCache(WINDOW)
    drop_ended_chunks(cache)
    assert cache.empty()
    cache.update_and_fetch(*(drawn((1, 2, 2 * WINDOW + 3, DIMENSION), seed) for seed in range(2)))
    newest = cache.keys_and_values()[0][..., -3:, :]
    drop_ended_chunks(cache)
    assert (cache.start_position, cache.offset) == (2 * WINDOW, 2 * WINDOW + 3)
    assert mx.array_equal(cache.keys_and_values()[0], newest).item()
    batch = _together(WINDOW, [3, 20])
    before = batch.cache.nbytes
    drop_ended_chunks(batch.cache)
    assert before == batch.cache.nbytes


def test_buffers_grow_up_to_a_chunk() -> None:
    """A chunk wider than a buffer's step: growth loses no column, and the ring ends at the chunk's size."""
    batch = _together(300, [250, 10, 299])
    assert batch.cache.keys.shape[2] == 300
    batch = _together(300, [250, 10])
    assert batch.cache.keys.shape[2] == 256
    assert max(batch.step() for _ in range(120)) < CLOSE
    assert batch.cache.keys.shape[2] == 300
    assert batch.holds_what_twins_hold()


def test_several_tokens_are_refused() -> None:
    """A ring overwrites what an earlier token of the same forward would still need."""
    layout = Layout.side_by_side([Layout([0], 3), Layout([0], 5)])
    cache = ChunkedKind(WINDOW).stack([filled(lambda: ChunkedKVCache(WINDOW), length, 1) for length in (3, 5)], layout)
    with pytest.raises(ValueError, match="one token"):
        chunk_mask(cache, 2)
