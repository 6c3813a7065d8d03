"""The plain kind: every token's keys and values are kept, for attention over the whole context."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from engine.cache.columns import blank, capacity_for, column_bytes, first_columns, grown, stacked
from engine.cache.layout import Layout
from engine.cache.masks import HEAD_AXES, Mask, with_axes


class FullBatch:
    """One layer's keys and values of B rows, [B, H, capacity, D] each; columns 0:layout.width are written.

    Without buffers until the first write.
    Speaks the interface that mlx-lm's attention layers use. The layout is shared by all layers and
    advanced once per forward by the batch, not here.
    """

    __slots__ = ("keys", "layout", "mask_axes", "values")

    def __init__(
        self, keys: mx.array | None, values: mx.array | None, layout: Layout, mask_axes: int = HEAD_AXES
    ) -> None:
        self.keys = keys
        self.values = values
        self.layout = layout
        self.mask_axes = mask_axes

    @property
    def offset(self) -> int | mx.array:
        """Position of the next token: int, or [B] int32."""
        return self.layout.offset

    @property
    def state(self) -> tuple[mx.array, ...]:
        """The arrays to evaluate."""
        return () if self.keys is None or self.values is None else (self.keys, self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return sum(buffer.nbytes for buffer in self.state)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Writes [B, H, L, D] behind the last column and returns all written columns."""
        start = self.layout.width
        stop = start + keys.shape[2]
        if self.keys is None or self.values is None:
            self.keys = blank(keys, capacity_for(stop + 1))
            self.values = blank(values, capacity_for(stop + 1))
        elif stop > self.keys.shape[2]:
            capacity = start + capacity_for(stop - start)
            self.keys = grown(self.keys, start, capacity)
            self.values = grown(self.values, start, capacity)
        self.keys[..., start:stop, :] = keys
        self.values[..., start:stop, :] = values
        return self.keys[..., :stop, :], self.values[..., :stop, :]

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next N tokens, built once per forward for all layers."""
        return with_axes(self.layout.mask(N, return_array, window_size), self.mask_axes)

    def size(self) -> int:
        """Columns written."""
        return self.layout.width

    def empty(self) -> bool:
        """Never: rows join with a prompt."""
        return False


class FullKind:
    """mlx-lm's KVCache alone, FullBatch together. Also where keys and values differ in width (latent attention)."""

    name = "plain"
    prefills_together = True

    def __init__(self, mask_axes: int = HEAD_AXES) -> None:
        self._mask_axes = mask_axes

    def blank(self, layout: Layout) -> FullBatch:
        """Without buffers: the first write tells their shape."""
        return FullBatch(None, None, layout, self._mask_axes)

    def stack(self, caches: list[Any], layout: Layout) -> FullBatch:
        """One copy of each part, in zeroed columns."""
        capacity = capacity_for(layout.width + 1)
        keys = stacked([[cache.keys[..., : cache.size(), :]] for cache in caches], layout.width, capacity)
        values = stacked([[cache.values[..., : cache.size(), :]] for cache in caches], layout.width, capacity)
        return FullBatch(keys, values, layout, self._mask_axes)

    def keep(self, cache: FullBatch, rows: mx.array, layout: Layout) -> FullBatch:
        """Takes the rows and cuts the trimmed columns from the left."""
        trim = cache.layout.width - layout.width
        keys, values = cache.state
        return FullBatch(keys[rows, :, trim:, :], values[rows, :, trim:, :], layout, self._mask_axes)

    def alone(self, cache: FullBatch, index: int, *, has_spare: bool = True) -> KVCache:
        """Copies the row's own columns, and the free ones behind them."""
        columns = cache.layout.columns(index, has_spare=has_spare)
        keys, values = (mx.contiguous(part[index : index + 1, :, columns, :]) for part in cache.state)
        return KVCache.from_state((keys, values, cache.layout.width - columns.start))

    def shortest(self, tokens: int) -> int:
        """Any: no token needs a later one."""
        return 1

    def prefix(self, cache: Any, tokens: int) -> KVCache:
        """The columns that hold them, and free ones up to the next step."""
        keys, values = (first_columns(part, capacity_for(tokens + 1)) for part in (cache.keys, cache.values))
        return KVCache.from_state((keys, values, tokens))

    def row_bytes(self, cache: Any, columns: int) -> int:
        """Keys and values of every column."""
        return columns * column_bytes(cache.keys, cache.values)

    def room_tokens(self, cache: Any) -> int:
        """Its free columns."""
        return cache.keys.shape[2] - cache.size()

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """Whole steps are put behind the written columns."""
        if tokens <= self.room_tokens(cache):
            return cache.nbytes
        return cache.keys.shape[0] * self.row_bytes(cache, cache.size() + capacity_for(tokens))
