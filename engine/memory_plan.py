"""What the device's memory is for: one budget over all rows and kept prefixes, and the longest row that it holds.

Owns the arithmetic of one row; what all rows take together is ledger.py's.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

import mlx.nn as nn
import msgspec

from engine.cache.plan import CachePlan
from engine.cache.registry import kinds_of
from engine.errors import EngineError
from engine.footprint import Footprint
from engine.row import PROMPT_LOGITS_TOKENS
from engine.working import NO_WORK, WorkingMemory, measure_working_memory
from protocol.errors import ErrorCode
from protocol.messages import MAX_DRAFT_TOKENS, ModelFacts, Submit

log = logging.getLogger(__name__)

# A budget that does not hold so many tokens of one row is of no use.
LEAST_ROW_TOKENS: Final = 512
# Float32 numbers over the vocabulary that a row may need at once in a step: logits, masks, sorted copies.
_SAMPLED_BYTES: Final = 6 * 4
# The same for each token whose log-probabilities, or whose agreement with a guess, are looked at.
_READ_BYTES: Final = 2 * 4


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """What guessing needs beside a row. vocabulary_size: of the served model."""

    footprint: Footprint | None
    vocabulary_size: int

    def of(self, tokens: int) -> int:
        """For a row of so many tokens."""
        return self.reading_bytes + (0 if self.footprint is None else self.footprint.start_bytes(tokens))

    @property
    def reading_bytes(self) -> int:
        """To look at what the served model says of the guesses."""
        return (MAX_DRAFT_TOKENS + 1) * self.vocabulary_size * _READ_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """budget_bytes: over caches of all rows, what computing them needs, and kept prefixes; beside the weights.

    footprint: None where a layer keeps a cache of no kind, whose size nobody can tell before it is there.
    """

    budget_bytes: int
    footprint: Footprint | None
    vocabulary_size: int
    working: WorkingMemory = NO_WORK
    draft: DraftMemory | None = None

    @property
    def sampling_bytes(self) -> int:
        """Of one row in a step."""
        return self.vocabulary_size * _SAMPLED_BYTES

    def start_bytes(self, tokens: int, *, reads: bool = False) -> int:
        """The most that a row of so many tokens takes until it decodes, and for its first steps.

        reads: the log-probabilities of its prompt are wanted.
        """
        caches = 0 if self.footprint is None else self.footprint.start_bytes(tokens)
        logits = PROMPT_LOGITS_TOKENS * self.vocabulary_size * _READ_BYTES if reads else 0
        return caches + self.sampling_bytes + logits

    def layer_bytes(self, tokens: int) -> int:
        """Of the largest layer of a row alone."""
        return 0 if self.footprint is None else self.footprint.start_layer_bytes(tokens)

    def shared_bytes(self, tokens: int) -> int:
        """What a chunk or step needs, whosever it is: one layer twice, what is computed. tokens: of the longest row."""
        return self.layer_bytes(tokens) + self.working.of(tokens)

    def alone_bytes(self, tokens: int) -> int:
        """The most that a row of so many tokens needs when it is the only one."""
        guessing = 0 if self.draft is None else self.draft.of(tokens)
        return self.start_bytes(tokens) + self.shared_bytes(tokens) + guessing

    def check(self, submit: Submit, tokens: int) -> None:
        """Raises EngineError for a Submit of so many tokens that asks for more than fits beside the caches."""
        if submit.logprobs is None or not submit.logprobs.of_prompt:
            return
        needed_bytes = self.start_bytes(tokens, reads=True) + self.shared_bytes(tokens)
        if needed_bytes > self.budget_bytes:
            raise EngineError(
                ErrorCode.INVALID_REQUEST,
                f"the log-probabilities of a prompt of {tokens} tokens take {needed_bytes} bytes with its KV caches, "
                f"which may take {self.budget_bytes}: shorten it, leave them out, or raise --kv-cache-memory-bytes",
                param="logprobs",
            )

    def longest_row(self, most_tokens: int) -> int:
        """The tokens of the longest row that the budget holds alone, up to so many; 0 when it holds none."""
        if self.footprint is None or self.alone_bytes(most_tokens) <= self.budget_bytes:
            return most_tokens
        return bisect_right(range(1, most_tokens), self.budget_bytes, key=self.alone_bytes)


class Computed(NamedTuple):
    """What is computed for a row, and in which pieces. draft: the model that guesses for it."""

    model: nn.Module
    cache_plan: CachePlan
    chunk_tokens: int
    draft: nn.Module | None = None


def footprint_of(model: nn.Module, plan: CachePlan, chunk_tokens: int) -> Footprint | None:
    """Of this model's rows; None when a layer's cache is of no kind."""
    samples = plan.samples(model)
    kinds = kinds_of(samples)
    if kinds is None:
        return None
    floats = None
    if plan.quantized and not plan.start_tokens:
        floats = footprint_of(model, CachePlan(), chunk_tokens)
    return Footprint(kinds, samples, chunk_tokens, floats)


def plan_memory(computed: Computed, facts: ModelFacts, budget_bytes: int) -> MemoryPlan:
    """Measures what a chunk needs: takes as long as two of them."""
    measured_tokens = min(computed.chunk_tokens, max(1, facts.context_length // 2))
    draft = None
    if computed.draft is not None:
        footprint = footprint_of(computed.draft, CachePlan(), computed.chunk_tokens)
        draft = DraftMemory(footprint, facts.vocabulary_size)
    return MemoryPlan(
        budget_bytes=budget_bytes,
        footprint=footprint_of(computed.model, computed.cache_plan, computed.chunk_tokens),
        vocabulary_size=facts.vocabulary_size,
        working=measure_working_memory(computed.model, measured_tokens),
        draft=draft,
    )


def within_memory(facts: ModelFacts, plan: MemoryPlan) -> ModelFacts:
    """With no longer context than one row can have. Raises EngineError(BAD_SETTING) where that is next to none."""
    longest = plan.longest_row(facts.context_length)
    fields = {"budget_bytes": plan.budget_bytes, "row_tokens": longest, "row_bytes": plan.alone_bytes(longest)}
    if plan.footprint is None:
        log.warning("memory.unknown", extra={"reason": "the model's layers keep caches of no known kind"})
    elif longest < min(LEAST_ROW_TOKENS, facts.context_length):
        raise _too_small(plan, min(LEAST_ROW_TOKENS, facts.context_length))
    elif longest < facts.context_length:
        change = "raise --kv-cache-memory-bytes, or quantize with --kv-bits"
        log.warning("memory.context", extra={**fields, "model_tokens": facts.context_length, "change": change})
    else:
        log.info("memory.budget", extra=fields)
    return msgspec.structs.replace(
        facts,
        context_length=longest,
        model_context_length=facts.context_length,
        kv_budget_bytes=plan.budget_bytes,
    )


def _too_small(plan: MemoryPlan, tokens: int) -> EngineError:
    return EngineError(
        ErrorCode.BAD_SETTING,
        f"{plan.budget_bytes} bytes for KV caches: one request of {tokens} tokens needs {plan.alone_bytes(tokens)}, "
        f"{plan.working.of(tokens)} of them to compute a chunk of its prompt; raise --kv-cache-memory-bytes, lower "
        "--prefill-step-size, quantize with --kv-bits, or take a smaller model",
        param="kv_cache_memory_bytes",
    )
