"""The quantized sliding-window kind: a ring of quantized columns. mlx-lm has no such cache, alone or together."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from engine.cache.columns import STEP_TOKENS, column_bytes, grown, stacked
from engine.cache.layout import Layout
from engine.cache.masks import Mask
from engine.cache.quantized import Triple, columns_of, each, write
from engine.cache.ring import Ring
from engine.cache.rotating import (
    kept_columns,
    last_columns,
    ordered_pieces,
    refuse_several,
    ring_capacity,
    ring_columns,
    ring_room,
    window_columns,
)
from engine.cache.scheme import LayerScheme


class QuantizedRotatingCache(RotatingKVCache):
    """One row's last `max_size` tokens, quantized. Columns and masks follow RotatingKVCache's rule."""

    def __init__(self, max_size: int, scheme: LayerScheme) -> None:
        super().__init__(max_size)
        self.keys: Triple | None = None
        self.values: Triple | None = None
        self.bits = scheme.bits
        self.group_size = scheme.group_size

    @classmethod
    def of(cls, cache: RotatingKVCache, scheme: LayerScheme) -> "QuantizedRotatingCache":
        """What a float cache holds, quantized."""
        state: Any = cache.state
        keys, values, offset, _, window, next_column = state
        if keys is None:
            return cls(window, scheme)
        triples = _triple(keys, scheme), _triple(values, scheme)
        return cls.from_state((*triples, offset, window, next_column, scheme.bits, scheme.group_size))

    @property
    def scheme(self) -> LayerScheme:
        """Bits and group size."""
        return LayerScheme(self.bits, self.group_size)

    @property
    def state(self) -> tuple[Any, ...]:
        """As RotatingKVCache, with bits and group size behind."""
        return self.keys, self.values, self.offset, self.max_size, self._idx, self.bits, self.group_size

    @state.setter
    def state(self, v: tuple[Any, ...]) -> None:
        self.keep = 0
        self.keys, self.values, self.offset, self.max_size, self._idx, self.bits, self.group_size = v

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(part.nbytes for part in (*(self.keys or ()), *(self.values or ())))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Triple, Triple]:
        """Quantizes and writes [1, H, L, D]; returns all columns that the L tokens may see."""
        new_keys, new_values = _triple(keys, self.scheme), _triple(values, self.scheme)
        if self.keys is None or self.values is None:
            self.keys, self.values = new_keys, new_values
            self._idx = keys.shape[2]
        elif keys.shape[2] == 1:
            self._write_one(new_keys, new_values)
        else:
            # The first of the new tokens still sees max_size - 1 older ones.
            self.keys = _appended(self.ordered(self.keys), new_keys, self.max_size - 1)
            self.values = _appended(self.ordered(self.values), new_values, self.max_size - 1)
            self._idx = self.keys[0].shape[2]
        self.offset += keys.shape[2]
        written = slice(0, min(self.offset, self.keys[0].shape[2]))
        return columns_of(self.keys, written), columns_of(self.values, written)

    def ordered(self, triple: Triple) -> Triple:
        """The written columns, oldest first."""
        return each(triple, self._temporal_order)

    def _write_one(self, keys: Triple, values: Triple) -> None:
        assert self.keys is not None
        assert self.values is not None
        columns = self.keys[0].shape[2]
        if columns > self.max_size:
            self.keys = columns_of(self.keys, slice(columns - self.max_size, None))
            self.values = columns_of(self.values, slice(columns - self.max_size, None))
            self._idx = self.max_size
        elif self.offset >= columns < self.max_size:
            capacity = min(columns + STEP_TOKENS, self.max_size)
            self.keys = each(self.keys, lambda part: grown(part, columns, capacity))
            self.values = each(self.values, lambda part: grown(part, columns, capacity))
        if self._idx == self.max_size:
            self._idx = 0
        write(self.keys, keys, self._idx)
        write(self.values, values, self._idx)
        self._idx += 1


class QuantizedRotatingBatch:
    """As RotatingBatch, of quantized columns. mlx-lm's attention tells it by `bits`."""

    __slots__ = ("bits", "group_size", "keys", "layout", "ring", "values")

    def __init__(self, keys: Triple, values: Triple, layout: Layout, ring: Ring, scheme: LayerScheme) -> None:
        self.keys = keys
        self.values = values
        self.layout = layout
        self.ring = ring
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
        """Quantizes and writes [B, H, 1, D] into the ring; returns all written columns, in ring order."""
        refuse_several(keys.shape[2])
        head = self.ring.head
        if head >= self.keys[0].shape[2]:
            capacity = ring_capacity(head + 1, self.ring.window)
            self.keys = each(self.keys, lambda part: grown(part, head, capacity))
            self.values = each(self.values, lambda part: grown(part, head, capacity))
        write(self.keys, mx.quantize(keys, self.group_size, self.bits), head)
        write(self.values, mx.quantize(values, self.group_size, self.bits), head)
        written = slice(0, self.ring.next_filled)
        return columns_of(self.keys, written), columns_of(self.values, written)

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next token, built once per forward for all layers of this window."""
        refuse_several(N)
        return self.ring.mask(window_size)

    def size(self) -> int:
        """Columns written."""
        return self.ring.filled

    def empty(self) -> bool:
        """Never: rows join with a prompt."""
        return False


class QuantizedRotatingKind:
    """QuantizedRotatingCache alone, QuantizedRotatingBatch together."""

    name = "quantized sliding window"
    prefills_together = False

    def __init__(self, window: int, scheme: LayerScheme) -> None:
        self._window = window
        self._scheme = scheme

    def blank(self, layout: Layout) -> QuantizedRotatingBatch:
        """Not asked for: prompts are prefilled alone."""
        raise NotImplementedError

    def stack(self, caches: list[Any], layout: Layout) -> QuantizedRotatingBatch:
        """The last `window` tokens of each part, in order, in zeroed columns."""
        ring = layout.ring(self._window)
        capacity = ring_capacity(ring.filled + 1, self._window)

        def joined(which: str) -> Triple:
            parts = ([_pieces(cache, which, part) for cache in caches] for part in range(3))
            packed, scales, biases = (stacked(part, ring.filled, capacity) for part in parts)
            return packed, scales, biases

        return QuantizedRotatingBatch(joined("keys"), joined("values"), layout, ring, self._scheme)

    def keep(self, cache: QuantizedRotatingBatch, rows: mx.array, layout: Layout) -> QuantizedRotatingBatch:
        """Takes the rows; the ring is put in order only when columns that no row holds are cut."""
        ring = layout.ring(self._window)
        keys, values = (each(triple, lambda part: kept_columns(part[rows], cache.ring, ring)) for triple in cache.state)
        return QuantizedRotatingBatch(keys, values, layout, ring, self._scheme)

    def alone(self, cache: QuantizedRotatingBatch, index: int, *, has_spare: bool = True) -> QuantizedRotatingCache:
        """Copies the row's own tokens, in order. A ring is never made with free columns."""
        live = cache.ring.live(index)

        def own(part: mx.array) -> mx.array:
            return mx.contiguous(last_columns(part[index : index + 1], cache.ring, live))

        keys, values = (each(triple, own) for triple in cache.state)
        offset = cache.layout.width - cache.layout.pads[index]
        return self._solo(keys, values, offset, live)

    def shortest(self, tokens: int) -> int:
        """Any before the window is full: from then on a token's column is another's."""
        return 1 if tokens < self._window else tokens

    def prefix(self, cache: Any, tokens: int) -> QuantizedRotatingCache:
        """Without the columns that a chunk has left beside the window."""
        keys, values, offset, window, next_column, _, _ = cache.state
        keys, values = (
            each(triple, lambda part: window_columns(part, window, next_column)) for triple in (keys, values)
        )
        return self._solo(keys, values, tokens, min(next_column, window) - (offset - tokens))

    def _solo(self, keys: Triple, values: Triple, tokens: int, next_column: int) -> QuantizedRotatingCache:
        state = (keys, values, tokens, self._window, next_column, self._scheme.bits, self._scheme.group_size)
        return QuantizedRotatingCache.from_state(state)

    def row_bytes(self, cache: Any, columns: int) -> int:
        """Keys and values of at most the window, with their scales and biases."""
        return min(columns, self._window) * column_bytes(*cache.keys, *cache.values)

    def room_tokens(self, cache: Any) -> int | None:
        """Its free columns, until it has the whole window."""
        return ring_room(cache.keys[0].shape[2], cache.size(), self._window)

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """As of the float kind."""
        room = self.room_tokens(cache)
        if tokens == 1 and (room is None or room):
            return cache.nbytes
        ring = cache.ring if isinstance(cache, QuantizedRotatingBatch) else None
        columns = ring_columns(ring, cache.size(), tokens, self._window)
        return cache.keys[0].shape[0] * columns * column_bytes(*cache.keys, *cache.values)


def _pieces(cache: Any, which: str, part: int) -> list[mx.array]:
    """A solo or batched cache's live columns of one array, oldest first."""
    triple: Triple = getattr(cache, which)
    if isinstance(cache, QuantizedRotatingBatch):
        return ordered_pieces(triple[part], cache.ring)
    return [cache.ordered(triple)[part][..., -cache.size() :, :]]


def _triple(values: mx.array, scheme: LayerScheme) -> Triple:
    packed, scales, biases = mx.quantize(values, scheme.group_size, scheme.bits)
    return packed, scales, biases


def _appended(old: Triple, new: Triple, most_old: int) -> Triple:
    """The newest `most_old` of the old columns, then the new ones."""
    start = max(0, old[0].shape[2] - most_old)
    packed, scales, biases = (
        mx.concatenate([part[..., start:, :], added], axis=2) for part, added in zip(old, new, strict=True)
    )
    return packed, scales, biases
