"""The composite kind: a layer that keeps several caches, each of a kind of its own."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList

from engine.cache.base import CacheKind
from engine.cache.layout import Layout


class CompositeKind:
    """mlx-lm's CacheList alone and together: of solo caches, or of batched ones."""

    def __init__(self, kinds: Sequence[CacheKind]) -> None:
        self._kinds = kinds
        self.name = " with ".join(kind.name for kind in kinds)
        self.prefills_together = all(kind.prefills_together for kind in kinds)

    def blank(self, layout: Layout) -> CacheList:
        """Of blank ones."""
        return CacheList(*(kind.blank(layout) for kind in self._kinds))

    def stack(self, caches: list[Any], layout: Layout) -> CacheList:
        """Each of the layer's caches by its own kind."""
        parts = zip(*(cache.caches for cache in caches), strict=True)
        return CacheList(*(kind.stack(list(part), layout) for kind, part in zip(self._kinds, parts, strict=True)))

    def keep(self, cache: CacheList, rows: mx.array, layout: Layout) -> CacheList:
        """Each of the layer's caches by its own kind."""
        pairs = zip(self._kinds, cache.caches, strict=True)
        return CacheList(*(kind.keep(part, rows, layout) for kind, part in pairs))

    def alone(self, cache: CacheList, index: int, *, has_spare: bool = True) -> CacheList:
        """Each of the layer's caches by its own kind."""
        pairs = zip(self._kinds, cache.caches, strict=True)
        return CacheList(*(kind.alone(part, index, has_spare=has_spare) for kind, part in pairs))

    def shortest(self, tokens: int) -> int:
        """That of the layer's cache that can be cut least."""
        return max(kind.shortest(tokens) for kind in self._kinds)

    def prefix(self, cache: CacheList, tokens: int) -> CacheList:
        """Each of the layer's caches by its own kind."""
        pairs = zip(self._kinds, cache.caches, strict=True)
        return CacheList(*(kind.prefix(part, tokens) for kind, part in pairs))

    def row_bytes(self, cache: CacheList, columns: int) -> int:
        """Of all of the layer's caches."""
        return sum(kind.row_bytes(part, columns) for kind, part in zip(self._kinds, cache.caches, strict=True))

    def room_tokens(self, cache: CacheList) -> int | None:
        """That of the layer's cache which grows first."""
        rooms = (kind.room_tokens(part) for kind, part in zip(self._kinds, cache.caches, strict=True))
        return min((room for room in rooms if room is not None), default=None)

    def next_bytes(self, cache: CacheList, tokens: int) -> int:
        """Of all of the layer's caches."""
        return sum(kind.next_bytes(part, tokens) for kind, part in zip(self._kinds, cache.caches, strict=True))
