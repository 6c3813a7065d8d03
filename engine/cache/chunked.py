"""The chunked kind: a token sees those before it in its own chunk of positions, and nothing of earlier chunks.

Together the last `size` columns of all rows are a ring, as of a sliding window, under a mask of its own.
"""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache

from engine.cache.columns import capacity_for, column_bytes, stacked
from engine.cache.layout import Layout
from engine.cache.masks import HEAD_AXES, Mask, with_axes
from engine.cache.rotating import (
    RotatingBatch,
    kept_columns,
    last_columns,
    ordered_pieces,
    refuse_several,
    ring_capacity,
    ring_columns,
    ring_room,
)


class ChunkedBatch(RotatingBatch):
    """As RotatingBatch, each row's token seeing its own chunk alone."""

    __slots__ = ()

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next token, built once per forward for all layers of this chunk size."""
        refuse_several(N)
        return with_axes(self.ring.chunk_mask(), self.mask_axes)


class ChunkedKind:
    """mlx-lm's ChunkedKVCache alone, ChunkedBatch together. Only of models that build their masks by `chunk_mask`."""

    name = "chunked"
    prefills_together = False

    def __init__(self, size: int, mask_axes: int = HEAD_AXES) -> None:
        self._size = size
        self._mask_axes = mask_axes

    def blank(self, layout: Layout) -> ChunkedBatch:
        """Not asked for: prompts are prefilled alone."""
        raise NotImplementedError

    def stack(self, caches: list[Any], layout: Layout) -> ChunkedBatch:
        """Each part's last columns, in order, in zeroed ones: what a row has dropped of them it no longer sees."""
        ring = layout.ring(self._size)
        capacity = ring_capacity(ring.filled + 1, self._size)
        keys = stacked([self._in_order(cache, cache.keys) for cache in caches], ring.filled, capacity)
        values = stacked([self._in_order(cache, cache.values) for cache in caches], ring.filled, capacity)
        return ChunkedBatch(keys, values, layout, self._size, self._mask_axes)

    def keep(self, cache: ChunkedBatch, rows: mx.array, layout: Layout) -> ChunkedBatch:
        """Takes the rows; the ring is put in order only when columns that no row holds are cut."""
        ring = layout.ring(self._size)
        keys, values = (kept_columns(part[rows], cache.ring, ring) for part in cache.state)
        return ChunkedBatch(keys, values, layout, self._size, self._mask_axes)

    def alone(self, cache: ChunkedBatch, index: int, *, has_spare: bool = True) -> ChunkedKVCache:
        """Copies the tokens of the row's last chunk, in order. A ring is never made with free columns."""
        length = cache.layout.width - cache.layout.pads[index]
        start = _chunk_start(length, self._size)
        keys, values = (
            mx.contiguous(last_columns(part[index : index + 1], cache.ring, length - start)) for part in cache.state
        )
        return ChunkedKVCache.from_state((keys, values, length, self._size, start))

    def shortest(self, tokens: int) -> int:
        """Any that leaves tokens of the last chunk: those of earlier ones are gone."""
        return _chunk_start(tokens, self._size) + 1

    def prefix(self, cache: Any, tokens: int) -> ChunkedKVCache:
        """The tokens of its last chunk: what ended chunks have left is not kept."""
        start = max(cache.start_position, _chunk_start(tokens, self._size))
        columns = slice(start - cache.start_position, tokens - cache.start_position)
        keys, values = (mx.contiguous(part[..., columns, :]) for part in (cache.keys, cache.values))
        return ChunkedKVCache.from_state((keys, values, tokens, self._size, start))

    def row_bytes(self, cache: Any, columns: int) -> int:
        """Keys and values of at most a chunk."""
        return min(columns, self._size) * column_bytes(cache.keys, cache.values)

    def room_tokens(self, cache: Any) -> int | None:
        """Its free columns; alone also those before a chunk ends, whose columns are then cut away."""
        if isinstance(cache, ChunkedBatch):
            return ring_room(cache.keys.shape[2], cache.size(), self._size)
        start = _chunk_start(cache.offset, self._size)
        if start > cache.start_position:
            return 0
        free = cache.keys.shape[2] - (cache.offset - cache.start_position)
        return min(free, start + self._size + 1 - cache.offset)

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """A step more of the ring; alone whole steps behind what is left of the chunk."""
        columns: int = cache.keys.shape[2]
        if isinstance(cache, ChunkedBatch):
            room = self.room_tokens(cache)
            if room is not None and tokens > room:
                columns = ring_columns(cache.ring, 0, tokens, self._size)
        else:
            start = max(cache.start_position, _chunk_start(cache.offset, self._size))
            written = cache.offset - start
            # What is cut away leaves no free columns.
            if start > cache.start_position or written + tokens > columns:
                columns = written + capacity_for(tokens)
        return cache.keys.shape[0] * columns * column_bytes(cache.keys, cache.values)

    def _in_order(self, cache: Any, buffer: mx.array) -> list[mx.array]:
        """A solo or batched cache's columns, oldest first."""
        if isinstance(cache, ChunkedBatch):
            return ordered_pieces(buffer, cache.ring)
        # A prefill chunk may have written several chunks of positions.
        start = _chunk_start(cache.offset, self._size) - cache.start_position
        return [buffer[..., max(0, start) : cache.offset - cache.start_position, :]]


def drop_ended_chunks(cache: Any) -> None:
    """Frees what no further token of a solo cache will see, once a chunk: mlx-lm does it one column at a step.

    The chunk of the newest token stays, so that a cache in use is never without its arrays.
    """
    if not isinstance(cache, ChunkedKVCache) or cache.keys is None or cache.values is None:
        return
    start = _chunk_start(cache.offset, cache.chunk_size)
    if start > cache.start_position:
        ended = slice(start - cache.start_position, cache.offset - cache.start_position)
        cache.keys, cache.values = cache.keys[..., ended, :], cache.values[..., ended, :]
        cache.start_position = start


def left_in_chunk(caches: list[Any], position: int, wanted: int) -> int:
    """How many of so many wanted tokens, from this position on, lie in its chunk of every solo chunked cache.

    At least one does. After more than that many forwards of one token each the chunk may have been dropped.
    """
    sizes = [cache.chunk_size for cache in caches if isinstance(cache, ChunkedKVCache)]
    return min([wanted, *(size - position % size for size in sizes)])


def chunk_mask(cache: Any, tokens: int) -> Mask:
    """Attention mask of the next tokens of a solo cache or a batched one, whose columns end with them."""
    if isinstance(cache, ChunkedBatch):
        return cache.make_mask(tokens)
    start, offset, size = cache.start_position, cache.offset, cache.chunk_size
    if start // size == (offset + tokens - 1) // size:
        return "causal" if tokens > 1 else None
    columns = mx.arange(start, offset + tokens)
    positions = mx.arange(offset, offset + tokens)[:, None]
    return (columns // size == positions // size) & (columns <= positions)


def _chunk_start(length: int, size: int) -> int:
    """Position at which the chunk of the last of so many tokens begins."""
    return max(0, length - 1) // size * size
