"""How one model's rows keep their caches: what was found out at start, for as long as the engine runs."""

from dataclasses import dataclass
from typing import Final

import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine.cache.base import CacheKind
from engine.cache.masks import HEAD_AXES
from engine.cache.registry import kinds_of


@dataclass(frozen=True, slots=True)
class CachePlan:
    """mask_axes: of the scores that the model's attention masks."""

    mask_axes: int = HEAD_AXES

    def kinds(self, model: nn.Module) -> list[CacheKind] | None:
        """The kind of each of the model's caches; None when rows cannot share a batch."""
        return kinds_of(make_prompt_cache(model), self.mask_axes)


DEFAULT_PLAN: Final = CachePlan()
