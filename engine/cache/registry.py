"""Which kind owns which of mlx-lm's cache classes; adding a kind is one file and one line here."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from engine.cache.base import CacheKind
from engine.cache.chunked import ChunkedKind
from engine.cache.composite import CompositeKind
from engine.cache.full import FullKind
from engine.cache.masks import HEAD_AXES
from engine.cache.quantized import QuantizedKind
from engine.cache.recurrent import RecurrentKind
from engine.cache.rotating import RotatingKind
from engine.cache.rotating_quantized import QuantizedRotatingCache, QuantizedRotatingKind
from engine.cache.scheme import LayerScheme
from protocol.messages import Batching


class NoKindError(Exception):
    """A cache that cannot join a batch. The message says why, in words that follow "its layers"."""


def kind_of(cache: Any, mask_axes: int = HEAD_AXES) -> CacheKind:
    """The kind of one solo cache, by its exact class: a subclass may keep something else. Raises NoKindError."""
    make = _KINDS.get(type(cache))
    if make is None:
        raise NoKindError(f"keep a {type(cache).__name__}, which cannot join a batch yet")
    return make(cache, mask_axes)


def kinds_of(caches: Sequence[Any], mask_axes: int = HEAD_AXES) -> list[CacheKind] | None:
    """The kind of each layer's solo cache, or None when one of them cannot join a batch.

    mask_axes: of the scores that the model's attention masks.
    """
    try:
        return [kind_of(cache, mask_axes) for cache in caches]
    except NoKindError:
        return None


def declared_batching(caches: Sequence[Any]) -> Batching:
    """Whether these solo caches can be batched, by what their kinds declare."""
    if not caches:
        return Batching(mode="serial", reason="it keeps no cache")
    reasons = dict.fromkeys(_reasons(caches))
    if reasons:
        return Batching(mode="serial", reason=f"its layers {' and '.join(reasons)}")
    names = dict.fromkeys(kind_of(cache).name for cache in caches)
    return Batching(mode="batch", reason=f"its layers' caches can share a batch: {', '.join(names)}")


def _reasons(caches: Sequence[Any]) -> Iterator[str]:
    for cache in caches:
        try:
            kind_of(cache)
        except NoKindError as error:
            yield str(error)


def _full(_cache: KVCache, mask_axes: int) -> CacheKind:
    return FullKind(mask_axes)


def _rotating(cache: RotatingKVCache, mask_axes: int) -> CacheKind:
    if cache.keep:
        raise NoKindError(f"keep their first {cache.keep} tokens beside a window, which cannot join a batch yet")
    return RotatingKind(cache.max_size, mask_axes)


def _quantized(cache: QuantizedKVCache, _mask_axes: int) -> CacheKind:
    return QuantizedKind(LayerScheme(cache.bits, cache.group_size))


def _quantized_rotating(cache: QuantizedRotatingCache, _mask_axes: int) -> CacheKind:
    return QuantizedRotatingKind(cache.max_size, cache.scheme)


def _recurrent(_cache: ArraysCache, _mask_axes: int) -> CacheKind:
    return RecurrentKind()


def _composite(cache: CacheList, mask_axes: int) -> CacheKind:
    return CompositeKind([kind_of(part, mask_axes) for part in cache.caches])


def _chunked(cache: ChunkedKVCache, mask_axes: int) -> CacheKind:
    return ChunkedKind(cache.chunk_size, mask_axes)


_KINDS: Final[dict[type[Any], Callable[[Any, int], CacheKind]]] = {
    KVCache: _full,
    RotatingKVCache: _rotating,
    ArraysCache: _recurrent,
    CacheList: _composite,
    ChunkedKVCache: _chunked,
    QuantizedKVCache: _quantized,
    QuantizedRotatingCache: _quantized_rotating,
}
