"""The contract of a cache kind: how the caches of one layer join, leave and stand alone."""

from typing import Any, Protocol

import mlx.core as mx

from engine.cache.layout import Layout


class CacheKind(Protocol):
    """What the batch may do with one layer's cache. Solo caches are mlx-lm's own objects.

    Invariant: no two caches ever hold the same array object, since a write through one would change the other.
    """

    # In a user's words.
    name: str
    # Whether a forward over left-padded prompts fills `blank` caches as each row's own prefill would.
    prefills_together: bool

    def blank(self, layout: Layout) -> Any:
        """A batched cache for the rows of `layout`, whose width is 0: nothing is written yet."""
        ...

    def stack(self, caches: list[Any], layout: Layout) -> Any:
        """One batched cache from solo and batched ones, rows in order, right-aligned in `layout`."""
        ...

    def keep(self, cache: Any, rows: mx.array, layout: Layout) -> Any:
        """The batched cache of these rows alone, in `layout` (which may have trimmed shared padding).

        rows: [B] uint32, one array for all layers.
        """
        ...

    def alone(self, cache: Any, index: int, *, has_spare: bool = True) -> Any:
        """Row `index` as a solo cache of its own: the bytes that its solo run would hold.

        has_spare: with the free columns behind them, for a row that goes on.
        """
        ...

    def shortest(self, tokens: int) -> int:
        """The fewest tokens to which a cache that holds so many can be cut, `tokens` itself where it cannot."""
        ...

    def prefix(self, cache: Any, tokens: int) -> Any:
        """A solo cache of its own with the first tokens of another. Bytes are copied once either of them is written.

        tokens: as many as it holds, or at least `shortest`.
        """
        ...

    def row_bytes(self, cache: Any, columns: int) -> int:
        """What one row takes in a group of so many columns. cache: any of this kind, alone or batched, in use."""
        ...

    def room_tokens(self, cache: Any) -> int | None:
        """How many tokens can be written one by one before it takes more bytes, None for any number; in use."""
        ...

    def next_bytes(self, cache: Any, tokens: int) -> int:
        """All its bytes, of all rows, once a forward has written so many tokens; in use."""
        ...
