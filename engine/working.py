"""What a prefill chunk needs beside weights and caches, for as long as it runs: measured on the device at start."""

from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine import prefill
from engine.cache.recurrent import release_chunk


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
    """Runs two chunks, the second behind the first: where scores are held, they grow with what is read."""
    caches = make_prompt_cache(model)
    first, second = (_chunk_peak(model, caches, chunk_tokens) for _ in range(2))
    return WorkingMemory(max(first, second, 0), max(0, second - first) // chunk_tokens)


def _chunk_peak(model: nn.Module, caches: list[object], tokens: int) -> int:
    """The most that was held during a chunk, over what its caches leave."""
    mx.clear_cache()
    mx.reset_peak_memory()
    model(mx.array([[3 + index % 5 for index in range(tokens)]], dtype=mx.uint32), cache=caches)
    release_chunk(caches)
    prefill.wait_for_chunk(caches)
    return mx.get_peak_memory() - mx.get_active_memory()
