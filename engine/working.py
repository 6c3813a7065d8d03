"""What a prefill chunk needs beside weights and caches, for as long as it runs: measured on the device at start."""

from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from engine import prefill
from engine.cache.recurrent import release_chunk

# So far before the second chunk lies the first one: what differs between two runs by chance counts for little then.
CONTEXT_TOKENS: Final = 1_024


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """chunk_bytes: of a chunk with nothing before it; context_token_bytes: more for each token before it."""

    chunk_bytes: int = 0
    context_token_bytes: int = 0

    def of(self, context_tokens: int) -> int:
        """Of one chunk behind so many tokens."""
        return self.chunk_bytes + context_tokens * self.context_token_bytes


NO_WORK: Final = WorkingMemory()


def measure_working_memory(model: nn.Module, chunk_tokens: int) -> WorkingMemory:
    """Runs two chunks, the second behind more context: where scores are held, they grow with what is read."""
    caches = make_prompt_cache(model)
    first = max(0, _chunk_peak(model, caches, chunk_tokens))
    caches = [_lengthened(cache) for cache in caches]
    prefill.wait_for_chunk(caches)
    second = _chunk_peak(model, caches, chunk_tokens)
    return WorkingMemory(first, max(0, second - first) // CONTEXT_TOKENS)


def _chunk_peak(model: nn.Module, caches: list[Any], tokens: int) -> int:
    """The most that was held during a chunk, over what its caches leave."""
    mx.clear_cache()
    mx.reset_peak_memory()
    model(mx.array([[3 + index % 5 for index in range(tokens)]], dtype=mx.uint32), cache=caches)
    release_chunk(caches)
    prefill.wait_for_chunk(caches)
    return mx.get_peak_memory() - mx.get_active_memory()


def _lengthened(cache: Any) -> Any:
    """A cache whose attention is over the whole context, as if it held so much of it; any other as it is."""
    if isinstance(cache, CacheList):
        return CacheList(*(_lengthened(part) for part in cache.caches))
    if type(cache) is not KVCache or cache.keys is None or cache.values is None:
        return cache
    keys, values = (
        mx.zeros((*part.shape[:2], CONTEXT_TOKENS, part.shape[3]), part.dtype) for part in (cache.keys, cache.values)
    )
    return KVCache.from_state((keys, values, CONTEXT_TOKENS))
