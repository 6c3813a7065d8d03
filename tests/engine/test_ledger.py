"""What rows may take: a draft model's guesses have what rows leave, and hold up nobody's start."""

import pytest

from engine.cache.plan import CachePlan
from engine.memory_plan import DraftMemory, footprint_of
from engine.model.draft import DraftModel
from engine.prefix.store import StoreLimits
from engine.speculate import Speculator
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

CHUNK_TOKENS = 128
LONGEST_TOKENS = 700
DRAFT_BYTES = 4_321


def guessing_driver(more_rows: int) -> LoopDriver:
    """Room for the longest row with its guesses, and for so many rows more. The draft is the model itself."""
    model = tiny_model("llama")
    facts = facts_of(model)
    draft = DraftMemory(footprint_of(model, CachePlan(), CHUNK_TOKENS), facts.vocabulary_size)
    plan = LoopDriver(model, facts, draft=draft).loop._parts.memory
    budget_bytes = plan.alone_bytes(LONGEST_TOKENS) + more_rows * plan.start_bytes(LONGEST_TOKENS)
    return LoopDriver(
        model,
        facts,
        chunk_tokens=CHUNK_TOKENS,
        speculator=Speculator(DraftModel("d", model, facts.vocabulary_size, DRAFT_BYTES), 4, CHUNK_TOKENS),
        budget_bytes=budget_bytes,
        prefixes=StoreLimits(budget_bytes),
        draft=draft,
    )


def _finished_first(driver: LoopDriver) -> str:
    """Which of the two rows, of 400 and 690 tokens, ends first; looks at the ledger after every turn."""
    driver.submit("long", prompt_of(400), max_tokens=250)
    driver.turn(12)
    assert driver.loop._tally.accepted_tokens > 0
    driver.submit("late", prompt_of(690, 1), max_tokens=10)
    ended: list[str] = []
    while driver.live_ids():
        driver.turn()
        ledger = driver.loop._ledger
        assert ledger.size_bytes + driver.prefixes.status().size_bytes <= ledger.budget_bytes
        ended += [id_ for id_ in ("long", "late") if id_ not in driver.live_ids() and id_ not in ended]
        assert driver.turns < 2_000
    return ended[0]


@pytest.mark.parametrize("more_rows", [0, 2])
def test_guesses_give_way_to_a_row_that_waits(more_rows: int) -> None:
    """It starts beside the row that is guessed at, not behind it; nobody is preempted, and the text is the same."""
    driver = guessing_driver(more_rows)
    assert _finished_first(driver) == "late"
    assert driver.loop._tally.preemptions == 0
    model = tiny_model("llama")
    assert driver.tokens("long") == solo_tokens(model, prompt_of(400), 250)
    assert driver.tokens("late") == solo_tokens(model, prompt_of(690, 1), 10)


def test_guesses_come_back_when_the_row_is_alone() -> None:
    """The draft model catches up once the row that needed its room has ended."""
    driver = guessing_driver(0)
    driver.submit("long", prompt_of(400), max_tokens=250)
    driver.turn(12)
    driver.submit("late", prompt_of(690, 1), max_tokens=3)
    driver.turn()
    while "late" in driver.live_ids():
        driver.turn()
        assert driver.turns < 2_000
    assert driver.live_ids() == ["long"]
    accepted_tokens = driver.loop._tally.accepted_tokens
    driver.run_until_idle()
    assert driver.loop._tally.accepted_tokens > accepted_tokens + 20


def test_the_weights_of_both_models_are_told() -> None:
    """What is held beside the budget can be told from what is held."""
    driver = guessing_driver(0)
    driver.loop._publish()
    assert driver.board.status().memory.weights_bytes == driver.loop._parts.weights_bytes + DRAFT_BYTES
