"""How one model's rows keep their caches: what was found out at start, for as long as the engine runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache, make_prompt_cache

from engine.cache.base import CacheKind
from engine.cache.masks import HEAD_AXES
from engine.cache.registry import kinds_of
from engine.cache.rotating_quantized import QuantizedRotatingCache
from engine.cache.scheme import LayerScheme


@dataclass(frozen=True, slots=True)
class CachePlan:
    """mask_axes: of the scores that the model's attention masks.

    quantized: how, for the caches (by their place in the model's list) that are; rows shorter than
    start_tokens keep float ones. Over 0, the rows of a batch are those that stay shorter.
    """

    mask_axes: int = HEAD_AXES
    quantized: Mapping[int, LayerScheme] = field(default_factory=dict[int, LayerScheme])
    start_tokens: int = 0

    def prototypes(self, model: nn.Module) -> list[Any]:
        """Empty solo caches of the classes with which rows join."""
        caches = make_prompt_cache(model)
        if self.start_tokens:
            return caches
        for index, scheme in self.quantized.items():
            caches[index] = converted(caches[index], scheme)
        return caches

    def samples(self, model: nn.Module, tokens: int = 2) -> list[Any]:
        """Solo caches of those classes with a few tokens in them, of which nothing is computed: their shapes tell."""
        caches = make_prompt_cache(model)
        model(mx.zeros((1, tokens), dtype=mx.uint32), cache=caches)
        if not self.start_tokens:
            for _ in self.convert(caches, tokens):
                pass
        return caches

    def kinds(self, model: nn.Module) -> list[CacheKind] | None:
        """The kind of each of the model's caches as rows join with them; None when they cannot share a batch."""
        return kinds_of(self.prototypes(model), self.mask_axes)

    def must_decode_alone(self, tokens: int) -> bool:
        """Whether a row that comes to hold so many tokens changes its caches while it decodes."""
        return bool(self.quantized) and 0 < self.start_tokens <= tokens

    def convert(self, caches: list[Any], tokens: int) -> Iterator[Any]:
        """Quantizes in place those of a row's solo caches that are due, one by one: yields each new one.

        tokens: how many the row holds. Empty caches are never converted.
        """
        if not self.quantized or not tokens or tokens < self.start_tokens:
            return
        for index, scheme in self.quantized.items():
            if not hasattr(caches[index], "bits"):
                caches[index] = converted(caches[index], scheme)
                yield caches[index]


DEFAULT_PLAN: Final = CachePlan()


def can_convert(cache: Any) -> bool:
    """Whether a solo cache has a quantized form."""
    return type(cache) is KVCache or (type(cache) is RotatingKVCache and not cache.keep)


def converted(cache: Any, scheme: LayerScheme) -> QuantizedKVCache | QuantizedRotatingCache:
    """A solo cache in its quantized form. Raises ValueError where a head's width is no multiple of the group."""
    if type(cache) is RotatingKVCache:
        return QuantizedRotatingCache.of(cache, scheme)
    return cache.to_quantized(group_size=scheme.group_size, bits=scheme.bits)
