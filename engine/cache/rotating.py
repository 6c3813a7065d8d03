"""The sliding-window kind: a ring of the last `window` tokens' keys and values."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from engine.cache.columns import STEP_TOKENS, capacity_for, column_bytes, grown, stacked
from engine.cache.layout import Layout
from engine.cache.masks import HEAD_AXES, Mask, with_axes
from engine.cache.ring import Ring


class RotatingBatch:
    """One layer's last tokens of B rows, [B, H, capacity, D] each; ring columns 0:ring.filled are written.

    As FullBatch, but each row's oldest token gives way once the ring is full. Takes one token a forward.
    """

    __slots__ = ("keys", "layout", "mask_axes", "ring", "values")

    def __init__(
        self, keys: mx.array, values: mx.array, layout: Layout, window: int, mask_axes: int = HEAD_AXES
    ) -> None:
        self.keys = keys
        self.values = values
        self.layout = layout
        self.ring = layout.ring(window)
        self.mask_axes = mask_axes

    @property
    def offset(self) -> int | mx.array:
        """Position of the next token: int, or [B] int32."""
        return self.layout.offset

    @property
    def state(self) -> tuple[mx.array, mx.array]:
        """The arrays to evaluate."""
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return self.keys.nbytes + self.values.nbytes

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Writes [B, H, 1, D] into the ring and returns all written columns, in ring order."""
        refuse_several(keys.shape[2])
        head = self.ring.head
        if head >= self.keys.shape[2]:
            capacity = ring_capacity(head + 1, self.ring.window)
            self.keys = grown(self.keys, head, capacity)
            self.values = grown(self.values, head, capacity)
        self.keys[..., head : head + 1, :] = keys
        self.values[..., head : head + 1, :] = values
        filled = self.ring.next_filled
        if filled == self.keys.shape[2]:
            return self.keys, self.values
        return self.keys[..., :filled, :], self.values[..., :filled, :]

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Mask:  # noqa: N803  # mlx-lm's name
        """The mask for the next token, built once per forward for all layers of this window."""
        refuse_several(N)
        return with_axes(self.ring.mask(window_size), self.mask_axes)

    def size(self) -> int:
        """Columns written."""
        return self.ring.filled

    def empty(self) -> bool:
        """Never: rows join with a prompt."""
        return False


class RotatingKind:
    """mlx-lm's RotatingKVCache alone, RotatingBatch together."""

    name = "sliding window"
    prefills_together = False

    def __init__(self, window: int, mask_axes: int = HEAD_AXES) -> None:
        self._window = window
        self._mask_axes = mask_axes

    def blank(self, layout: Layout) -> RotatingBatch:
        """Not asked for: prompts are prefilled alone."""
        raise NotImplementedError

    def stack(self, caches: list[Any], layout: Layout) -> RotatingBatch:
        """The last `window` tokens of each part, in order, in zeroed columns."""
        ring = layout.ring(self._window)
        capacity = ring_capacity(ring.filled + 1, self._window)
        keys = stacked([_in_order(cache, cache.keys) for cache in caches], ring.filled, capacity)
        values = stacked([_in_order(cache, cache.values) for cache in caches], ring.filled, capacity)
        return RotatingBatch(keys, values, layout, self._window, self._mask_axes)

    def keep(self, cache: RotatingBatch, rows: mx.array, layout: Layout) -> RotatingBatch:
        """Takes the rows; the ring is put in order only when columns that no row holds are cut."""
        ring = layout.ring(self._window)
        keys, values = (kept_columns(part[rows], cache.ring, ring) for part in cache.state)
        return RotatingBatch(keys, values, layout, self._window, self._mask_axes)

    def alone(self, cache: RotatingBatch, index: int, *, has_spare: bool = True) -> RotatingKVCache:
        """Copies the row's own tokens, in order. A ring is never made with free columns."""
        live = cache.ring.live(index)
        keys, values = (mx.contiguous(last_columns(part[index : index + 1], cache.ring, live)) for part in cache.state)
        offset = cache.layout.width - cache.layout.pads[index]
        return RotatingKVCache.from_state((keys, values, offset, 0, self._window, live))

    def shortest(self, tokens: int) -> int:
        """Any before the window is full: from then on a token's column is another's."""
        return 1 if tokens < self._window else tokens

    def prefix(self, cache: Any, tokens: int) -> RotatingKVCache:
        """Without the columns that a chunk has left beside the window."""
        keys, values, offset, _, window, next_column = cache.state
        keys, values = (window_columns(part, window, next_column) for part in (keys, values))
        column = min(next_column, window) - (offset - tokens)
        return RotatingKVCache.from_state((keys, values, tokens, 0, window, column))

    def row_bytes(self, cache: Any, columns: int) -> int:
        """Keys and values of at most the window."""
        return min(columns, self._window) * column_bytes(cache.keys, cache.values)

    def room_tokens(self, cache: Any) -> int | None:
        """Its free columns, until it has the whole window."""
        return ring_room(cache.keys.shape[2], cache.size(), self._window)

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """A step more of the window; of a chunk all tokens, beside those that its first one sees."""
        room = self.room_tokens(cache)
        if tokens == 1 and (room is None or room):
            return cache.nbytes
        ring = cache.ring if isinstance(cache, RotatingBatch) else None
        columns = ring_columns(ring, cache.size(), tokens, self._window)
        return cache.keys.shape[0] * columns * column_bytes(cache.keys, cache.values)


def ring_capacity(columns: int, window: int) -> int:
    """Whole steps that hold so many columns, and no more than the window."""
    return min(capacity_for(columns), window)


def ring_room(columns: int, size: int, window: int) -> int | None:
    """Tokens for which `columns` with so many written ones suffice; None once they are the whole window."""
    return None if columns >= window else columns - size


def ring_columns(ring: Ring | None, size: int, tokens: int, window: int) -> int:
    """Columns of a ring that has to grow for so many tokens. ring: of a batched one; size: tokens in a solo one."""
    if ring is not None:
        return ring_capacity(ring.head + 1, window)
    return min(size + STEP_TOKENS, window) if tokens == 1 else min(size, window - 1) + tokens


def ordered_pieces(buffer: mx.array, ring: Ring) -> list[mx.array]:
    """The written columns, oldest first, in one or two pieces."""
    written = buffer[..., : ring.filled, :]
    if ring.filled < ring.window or ring.head == 0:
        return [written]
    return [written[..., ring.head :, :], written[..., : ring.head, :]]


def last_columns(buffer: mx.array, ring: Ring, columns: int) -> mx.array:
    """The newest columns, oldest first."""
    pieces = ordered_pieces(buffer, ring)
    ordered = pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=2)
    return ordered[..., ring.filled - columns :, :]


def kept_columns(buffer: mx.array, before: Ring, after: Ring) -> mx.array:
    """The buffer as `after` sees it: unchanged, or its newest columns in order, with room for one more."""
    if before.filled == after.filled:
        return buffer
    newest = last_columns(buffer, before, after.filled)
    return grown(newest, after.filled, ring_capacity(after.filled + 1, after.window))


def window_columns(buffer: mx.array, window: int, next_column: int) -> mx.array:
    """A solo ring's columns, without those that a chunk has left and nobody will see: their bytes are not kept."""
    if next_column <= window:
        return buffer[:]
    return mx.contiguous(buffer[..., next_column - window : next_column, :])


def solo_pieces(buffer: mx.array, cache: RotatingKVCache) -> Sequence[mx.array]:
    """A solo cache's live columns, oldest first, in one or two pieces."""
    *_, offset, _, window, next_column = cache.state
    if offset > next_column and next_column < buffer.shape[2]:
        return buffer[..., next_column:, :], buffer[..., :next_column, :]
    # A chunk leaves up to chunk - 1 columns more than the window.
    return (buffer[..., next_column - min(offset, window) : next_column, :],)


def _in_order(cache: Any, buffer: mx.array) -> Sequence[mx.array]:
    """A solo or batched cache's live columns, oldest first."""
    if isinstance(cache, RotatingBatch):
        return ordered_pieces(buffer, cache.ring)
    return solo_pieces(buffer, cache)


def refuse_several(tokens: int) -> None:
    """Raises ValueError: a ring overwrites what an earlier token of the same forward would still need."""
    if tokens != 1:
        raise ValueError(f"a sliding-window batch takes one token a forward, not {tokens}")
