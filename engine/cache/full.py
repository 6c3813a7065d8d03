"""The plain kind: every token's keys and values are kept, for attention over the whole context."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from engine.cache.layout import Layout, Mask

# Buffers grow by this many columns, as mlx-lm's own do.
STEP_TOKENS = 256


class FullBatch:
    """One layer's keys and values of B rows, [B, H, capacity, D] each; columns 0:layout.width are written.

    Without buffers until the first write.
    Speaks the interface that mlx-lm's attention layers use. The layout is shared by all layers and
    advanced once per forward by the batch, not here.
    """

    __slots__ = ("keys", "layout", "values")

    def __init__(self, keys: mx.array | None, values: mx.array | None, layout: Layout) -> None:
        self.keys = keys
        self.values = values
        self.layout = layout

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
            self.keys, self.values = _blank(keys, stop), _blank(values, stop)
        elif stop > self.keys.shape[2]:
            self.keys = _grown(self.keys, start, stop)
            self.values = _grown(self.values, start, stop)
        self.keys[..., start:stop, :] = keys
        self.values[..., start:stop, :] = values
        return self.keys[..., :stop, :], self.values[..., :stop, :]

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next N tokens, built once per forward for all layers."""
        return self.layout.mask(N, return_array, window_size)

    def size(self) -> int:
        """Columns written."""
        return self.layout.width

    def empty(self) -> bool:
        """Never: rows join with a prompt."""
        return False


class FullKind:
    """mlx-lm's KVCache alone, FullBatch together."""

    name = "full"
    solo_class: type[Any] = KVCache
    prefills_together = True

    def blank(self, layout: Layout) -> FullBatch:
        """Without buffers: the first write tells their shape."""
        return FullBatch(None, None, layout)

    def stack(self, caches: list[Any], layout: Layout) -> FullBatch:
        """Zeroed columns plus one copy of each part: masked padding must not hold NaN."""
        return FullBatch(
            _stacked([cache.keys for cache in caches], [cache.size() for cache in caches], layout),
            _stacked([cache.values for cache in caches], [cache.size() for cache in caches], layout),
            layout,
        )

    def keep(self, cache: FullBatch, keep: list[int], layout: Layout) -> FullBatch:
        """Takes the rows and cuts the trimmed columns from the left."""
        assert cache.keys is not None
        assert cache.values is not None
        trim = cache.layout.width - layout.width
        rows = mx.array(keep)
        return FullBatch(cache.keys[rows, :, trim:, :], cache.values[rows, :, trim:, :], layout)

    def alone(self, cache: FullBatch, index: int) -> KVCache:
        """Copies the row's own columns and the free ones behind them."""
        assert cache.keys is not None
        assert cache.values is not None
        pad = cache.layout.pads[index]
        solo = KVCache()
        solo.keys = mx.contiguous(cache.keys[index : index + 1, :, pad:, :])
        solo.values = mx.contiguous(cache.values[index : index + 1, :, pad:, :])
        solo.offset = cache.layout.width - pad
        return solo


def _stacked(parts: list[mx.array], lengths: list[int], layout: Layout) -> mx.array:
    """[rows, H, capacity, D] from parts of [b, H, ≥ length, D], each ending at column layout.width."""
    rows = sum(part.shape[0] for part in parts)
    capacity = _whole_steps(layout.width + 1)
    _, heads, _, dimension = parts[0].shape
    stacked = mx.zeros((rows, heads, capacity, dimension), parts[0].dtype)
    start = 0
    for part, length in zip(parts, lengths, strict=True):
        stop = start + part.shape[0]
        stacked[start:stop, :, layout.width - length : layout.width, :] = part[..., :length, :]
        start = stop
    return stacked


def _whole_steps(columns: int) -> int:
    return -(-columns // STEP_TOKENS) * STEP_TOKENS


def _blank(written: mx.array, needed: int) -> mx.array:
    """A buffer like `written` with room for `needed` columns and the token after them."""
    rows, heads, _, dimension = written.shape
    return mx.zeros((rows, heads, _whole_steps(needed + 1), dimension), written.dtype)


def _grown(buffer: mx.array, written: int, needed: int) -> mx.array:
    """The written columns in a buffer of whole steps that holds `needed` columns."""
    rows, heads, _, dimension = buffer.shape
    added = _whole_steps(needed - written)
    return mx.concatenate([buffer[..., :written, :], mx.zeros((rows, heads, added, dimension), buffer.dtype)], axis=2)
