"""What a row or an entry holds, and how caches with a prefix of it are made. Decides nothing of who keeps what."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from engine.batch import Group
from engine.cache.base import CacheKind
from engine.cache.registry import kinds_of


class Holding(NamedTuple):
    """One cache a layer, each of its kind. length: tokens in them. row_index: in batched ones; None: solo."""

    caches: list[Any]
    kinds: Sequence[CacheKind]
    length: int
    row_index: int | None = None

    @classmethod
    def of_solo(cls, caches: list[Any], length: int) -> "Holding | None":
        """Of solo caches; None when one of them is of no kind."""
        kinds = kinds_of(caches)
        return None if kinds is None else cls(caches, kinds, length)

    @classmethod
    def of_row(cls, group: Group, index: int) -> "Holding | None":
        """Of a row in a group; None as of solo caches."""
        length = group.layout.width - group.layout.pads[index]
        if len(group.rows) == 1:
            # Alone a row may have quantized what its batch would not.
            return cls.of_solo(group.caches, length)
        return None if group.kinds is None else cls(group.caches, group.kinds, length, index)

    @property
    def size_bytes(self) -> int:
        """Of all layers, as they would be kept."""
        pairs = zip(self.kinds, self.caches, strict=True)
        if self.row_index is None:
            return sum(cache.nbytes for cache in self.caches)
        return sum(kind.row_bytes(cache, self.length) for kind, cache in pairs)

    @property
    def shortest(self) -> int:
        """The fewest tokens to which all layers can be cut."""
        return shortest(self.kinds, self.length)

    def prefix(self, tokens: int) -> Iterator[Any]:
        """Solo caches of the first tokens, layer by layer; they share no array with what they are made of."""
        for kind, cache in zip(self.kinds, self.caches, strict=True):
            solo = cache if self.row_index is None else kind.alone(cache, self.row_index, has_spare=False)
            yield kind.prefix(solo, tokens)


def shortest(kinds: Sequence[CacheKind], tokens: int) -> int:
    """The fewest tokens to which caches of these kinds can be cut that hold so many."""
    return max((kind.shortest(tokens) for kind in kinds), default=tokens)
