"""The quantized plain kind: every token's keys and values in a few bits each, with scales and biases per group."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

from engine.cache.columns import capacity_for, column_bytes, first_columns, grown, stacked
from engine.cache.layout import Layout
from engine.cache.masks import Mask
from engine.cache.scheme import LayerScheme

# Packed values, scales and biases, [B, H, columns, any] each.
Triple = tuple[mx.array, mx.array, mx.array]


class QuantizedBatch:
    """As FullBatch, of quantized columns. mlx-lm's attention tells it by `bits`."""

    __slots__ = ("bits", "group_size", "keys", "layout", "values")

    def __init__(self, keys: Triple, values: Triple, layout: Layout, scheme: LayerScheme) -> None:
        self.keys = keys
        self.values = values
        self.layout = layout
        self.bits = scheme.bits
        self.group_size = scheme.group_size

    @property
    def offset(self) -> int | mx.array:
        """Position of the next token: int, or [B] int32."""
        return self.layout.offset

    @property
    def state(self) -> tuple[Triple, Triple]:
        """The arrays to evaluate."""
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(part.nbytes for part in (*self.keys, *self.values))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Triple, Triple]:
        """Quantizes and writes [B, H, L, D] behind the last column; returns all written columns."""
        start = self.layout.width
        stop = start + keys.shape[2]
        if stop > self.keys[0].shape[2]:
            capacity = start + capacity_for(stop - start)
            self.keys = each(self.keys, lambda part: grown(part, start, capacity))
            self.values = each(self.values, lambda part: grown(part, start, capacity))
        write(self.keys, mx.quantize(keys, self.group_size, self.bits), start)
        write(self.values, mx.quantize(values, self.group_size, self.bits), start)
        return columns_of(self.keys, slice(0, stop)), columns_of(self.values, slice(0, stop))

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next N tokens, built once per forward for all layers."""
        return self.layout.mask(N, return_array, window_size)

    def size(self) -> int:
        """Columns written."""
        return self.layout.width

    def empty(self) -> bool:
        """Never: rows join with a prompt."""
        return False


class QuantizedKind:
    """mlx-lm's QuantizedKVCache alone, QuantizedBatch together."""

    name = "quantized"
    prefills_together = False

    def __init__(self, scheme: LayerScheme) -> None:
        self._scheme = scheme

    def blank(self, layout: Layout) -> QuantizedBatch:
        """Not asked for: prompts are prefilled alone."""
        raise NotImplementedError

    def stack(self, caches: list[Any], layout: Layout) -> QuantizedBatch:
        """One copy of each part, in zeroed columns."""
        capacity = capacity_for(layout.width + 1)
        lengths = [_columns(cache) for cache in caches]

        def joined(triples: list[Triple]) -> Triple:
            parts = zip(*triples, strict=True)
            pieces = ([[part[..., :length, :]] for part, length in zip(part, lengths, strict=True)] for part in parts)
            packed, scales, biases = (stacked(each_part, layout.width, capacity) for each_part in pieces)
            return packed, scales, biases

        keys, values = joined([cache.keys for cache in caches]), joined([cache.values for cache in caches])
        return QuantizedBatch(keys, values, layout, self._scheme)

    def keep(self, cache: QuantizedBatch, rows: mx.array, layout: Layout) -> QuantizedBatch:
        """Takes the rows and cuts the trimmed columns from the left."""
        trim = cache.layout.width - layout.width
        keys, values = (each(triple, lambda part: part[rows, :, trim:, :]) for triple in cache.state)
        return QuantizedBatch(keys, values, layout, self._scheme)

    def alone(self, cache: QuantizedBatch, index: int, *, has_spare: bool = True) -> QuantizedKVCache:
        """Copies the row's own columns, and the free ones behind them."""
        columns = cache.layout.columns(index, has_spare=has_spare)
        keys, values = (
            each(triple, lambda part: mx.contiguous(part[index : index + 1, :, columns, :])) for triple in cache.state
        )
        return self._solo(keys, values, cache.layout.width - columns.start)

    def shortest(self, tokens: int) -> int:
        """Any: no token needs a later one."""
        return 1

    def prefix(self, cache: Any, tokens: int) -> QuantizedKVCache:
        """The columns that hold them, and free ones up to the next step."""
        capacity = capacity_for(tokens + 1)
        keys, values = (
            each(triple, lambda part: first_columns(part, capacity)) for triple in (cache.keys, cache.values)
        )
        return self._solo(keys, values, tokens)

    def _solo(self, keys: Triple, values: Triple, tokens: int) -> QuantizedKVCache:
        return QuantizedKVCache.from_state((keys, values, tokens, self._scheme.group_size, self._scheme.bits))

    def row_bytes(self, cache: Any, columns: int) -> int:
        """Keys and values of every column, with their scales and biases."""
        return columns * column_bytes(*cache.keys, *cache.values)

    def room_tokens(self, cache: Any) -> int:
        """Its free columns."""
        return cache.keys[0].shape[2] - _columns(cache)

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """Whole steps are put behind the written columns."""
        if tokens <= self.room_tokens(cache):
            return cache.nbytes
        return cache.keys[0].shape[0] * self.row_bytes(cache, _columns(cache) + capacity_for(tokens))


def _columns(cache: Any) -> int:
    """Those that a solo or batched cache has written."""
    return cache.layout.width if isinstance(cache, QuantizedBatch) else cache.offset


def each(triple: Triple, change: Callable[[mx.array], mx.array]) -> Triple:
    """The same change to all three arrays."""
    packed, scales, biases = triple
    return change(packed), change(scales), change(biases)


def columns_of(triple: Triple, columns: slice) -> Triple:
    """These columns of all three arrays."""
    return each(triple, lambda part: part[..., columns, :])


def write(triple: Triple, new: Any, start: int) -> None:
    """Puts quantized columns in, from `start` on. new: what mx.quantize gave."""
    for buffer, part in zip(triple, new, strict=True):
        buffer[..., start : start + part.shape[2], :] = part
