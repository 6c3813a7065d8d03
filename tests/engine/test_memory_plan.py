"""One budget: the longest row that it holds, and what is said where that is less than the model allows."""

import logging

import pytest

from engine.cache.plan import DEFAULT_PLAN
from engine.errors import EngineError
from engine.memory_plan import Computed, MemoryPlan, footprint_of, plan_memory, within_memory
from engine.working import WorkingMemory
from protocol.errors import ErrorCode
from protocol.messages import SubmitId
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model

MODEL = tiny_model("llama")
FACTS = facts_of(MODEL)
CHUNK_TOKENS = 128


def _plan(budget_bytes: int) -> MemoryPlan:
    return MemoryPlan(
        budget_bytes=budget_bytes,
        footprint=footprint_of(MODEL, DEFAULT_PLAN, CHUNK_TOKENS),
        vocabulary_size=FACTS.vocabulary_size,
        working=WorkingMemory(chunk_bytes=100_000, context_token_bytes=100),
    )


@pytest.mark.parametrize("tokens", [600, 601, 2_345, 4_095])
def test_the_longest_row_is_exact(tokens: int) -> None:
    """A budget that holds a row of so many tokens to the byte holds none of one more."""
    budget_bytes = _plan(0).alone_bytes(tokens)
    assert _plan(budget_bytes).longest_row(4_096) == tokens
    assert _plan(budget_bytes - 1).longest_row(4_096) == tokens - 1


def test_a_large_budget_leaves_the_context_as_it_is() -> None:
    """Nothing is said of memory then."""
    facts = within_memory(FACTS, _plan(1 << 40))
    assert (facts.context_length, facts.model_context_length) == (4_096, 4_096)
    assert (facts.kv_budget_bytes, facts.memory_limit) == (1 << 40, None)


def test_a_small_budget_shortens_the_context(caplog: pytest.LogCaptureFixture) -> None:
    """Clients are told what memory holds, the log says the model's own length and what to change."""
    budget_bytes = _plan(0).alone_bytes(1_000)
    with caplog.at_level(logging.WARNING):
        facts = within_memory(FACTS, _plan(budget_bytes))
    assert (facts.context_length, facts.model_context_length) == (1_000, 4_096)
    assert facts.memory_limit is not None
    for part in ("4096", "1000", str(budget_bytes), "--kv-cache-memory-bytes", "--kv-bits"):
        assert part in facts.memory_limit
    (record,) = caplog.records
    assert record.message == "memory.context"
    assert (record.__dict__["row_tokens"], record.__dict__["model_tokens"]) == (1_000, 4_096)


def test_a_budget_for_next_to_nothing_is_refused() -> None:
    """With what a short request needs, and what to change; also where the context itself is short."""
    budget_bytes = _plan(0).alone_bytes(511)
    with pytest.raises(EngineError) as refused:
        within_memory(FACTS, _plan(budget_bytes))
    assert refused.value.code == ErrorCode.BAD_SETTING
    for part in (str(budget_bytes), "512 tokens", str(_plan(0).alone_bytes(512)), "raise --kv-cache-memory-bytes"):
        assert part in refused.value.message
    short = facts_of(MODEL, context_length=300)
    assert within_memory(short, _plan(budget_bytes)).context_length == 300
    with pytest.raises(EngineError):
        within_memory(short, _plan(_plan(0).alone_bytes(299)))


def test_guessing_takes_its_own() -> None:
    """A draft model's caches stand beside the row's, so the longest row is shorter."""
    alone = plan_memory(Computed(MODEL, DEFAULT_PLAN, CHUNK_TOKENS), FACTS, 1 << 21)
    guessed = plan_memory(Computed(MODEL, DEFAULT_PLAN, CHUNK_TOKENS, tiny_model("qwen3")), FACTS, 1 << 21)
    draft = footprint_of(tiny_model("qwen3"), DEFAULT_PLAN, CHUNK_TOKENS)
    assert draft is not None
    assert guessed.start_bytes(500) == alone.start_bytes(500)
    assert guessed.draft is not None
    assert guessed.draft.of(500) > draft.start_bytes(500)


def test_a_prompt_that_memory_cannot_hold_is_refused_with_the_numbers() -> None:
    """E2: its tokens, what memory holds, the budget, what to change; the next one runs; max_tokens is clamped."""
    budget_bytes = _plan(0).alone_bytes(600)
    facts = within_memory(FACTS, _plan(budget_bytes))
    driver = LoopDriver(MODEL, facts, budget_bytes=budget_bytes)
    driver.submit("big", prompt_of(700))
    driver.submit("next", prompt_of(595), max_tokens=32_000)
    driver.run_until_idle()
    error = driver.mailbox.rejected[SubmitId("big")]
    assert error.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED
    for part in ("700 tokens", "600", "4096", str(budget_bytes), "shorten it", "--kv-cache-memory-bytes"):
        assert part in error.message
    assert (len(driver.tokens("next")), driver.finish("next").reason) == (5, "length")
