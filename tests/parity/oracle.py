"""mlx-lm's own generators, run live: what batched and solo rows must equal."""

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import BatchGenerator, generate_step


@dataclass(frozen=True)
class OracleRow:
    """A prompt, and how many steps the batch has run when it comes in."""

    prompt: list[int]
    max_tokens: int
    joins_after: int = 0


def solo_tokens(model: nn.Module, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of one row alone."""
    return [token for token, _ in generate_step(mx.array(prompt), model, max_tokens=count)]


def batch_tokens(model: nn.Module, rows: Iterable[OracleRow], prefilled_together: int = 1) -> list[list[int]]:
    """Greedy tokens of BatchGenerator: rows come in one by one, so many prefill together, and leave at their end."""
    waiting = list(enumerate(rows))
    generator = BatchGenerator(model, max_tokens=1, prefill_batch_size=prefilled_together, completion_batch_size=32)
    tokens: list[list[int]] = [[] for _ in waiting]
    index_of: dict[int, int] = {}
    steps = 0
    while waiting or index_of:
        while waiting and waiting[0][1].joins_after <= steps:
            index, row = waiting.pop(0)
            (uid,) = generator.insert([row.prompt], [row.max_tokens])
            index_of[uid] = index
        for response in generator.next_generated():
            tokens[index_of[response.uid]].append(response.token)
            if response.finish_reason:
                del index_of[response.uid]
        steps += 1
    generator.close()
    return tokens
