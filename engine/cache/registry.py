"""Which kind owns which of mlx-lm's cache classes; adding a kind is one file and one line here."""

from typing import Any, Final

from engine.cache.base import CacheKind
from engine.cache.full import FullKind
from protocol.messages import Batching

KINDS: Final[tuple[CacheKind, ...]] = (FullKind(),)

_BY_CLASS: Final[dict[type[Any], CacheKind]] = {kind.solo_class: kind for kind in KINDS}


def kinds_of(caches: list[Any]) -> list[CacheKind] | None:
    """The kind of each layer's solo cache, or None when one of them has no kind yet."""
    kinds = [_BY_CLASS.get(type(cache)) for cache in caches]
    return None if None in kinds else [kind for kind in kinds if kind is not None]


def declared_batching(caches: list[Any]) -> Batching:
    """Whether these solo caches can be batched, by what their kinds declare."""
    foreign = sorted({type(cache).__name__ for cache in caches if type(cache) not in _BY_CLASS})
    if foreign:
        return Batching(mode="serial", reason=f"its {' and '.join(foreign)} layers cannot join a batch yet")
    if not caches:
        return Batching(mode="serial", reason="it keeps no cache")
    return Batching(mode="batch", reason="every layer keeps a plain KV cache")
