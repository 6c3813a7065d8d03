"""What rows leave: for whom it is enough, how much room is asked for, and what it costs the rows that go on."""

import gc
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from engine.cache.plan import CachePlan
from engine.cache.scheme import LayerScheme
from engine.prefix.holding import Holding
from engine.prefix.store import StoreLimits
from protocol.messages import LogprobsWanted
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model, wide_headed_model

SCHEME = LayerScheme(8, 32)
# Of the first prompt's own log-probabilities, 128 tokens are computed at once.
LONG_CHUNK = 160
LONG = prompt_of(300)


def _quantized(chunk_tokens: int) -> LoopDriver:
    model = wide_headed_model()
    plan = CachePlan(quantized=dict.fromkeys(range(len(model.layers)), SCHEME))
    return LoopDriver(model, cache_plan=plan, chunk_tokens=chunk_tokens)


def _run(driver: LoopDriver, id_: str, prompt: list[int], **changes: Any) -> int:
    """Runs a row to its end; returns how many of its prompt's tokens were there already."""
    driver.submit(id_, prompt, **changes)
    driver.run_until_idle()
    return driver.finish(id_).usage.cached_tokens


@pytest.mark.parametrize("reply_tokens", [20, 40])
def test_a_prompt_read_in_other_chunks_spares_nobody_the_right_one(reply_tokens: int) -> None:
    """One whose log-probabilities are asked for is quantized early: what others need is kept beside it, or above."""
    driver = _quantized(LONG_CHUNK)
    wanted = LogprobsWanted(of_prompt=True)
    _run(driver, "echo", LONG, logprobs=wanted, max_tokens=30)
    assert _run(driver, "first", LONG, max_tokens=reply_tokens) == 0
    assert _run(driver, "second", LONG) == 299
    assert driver.tokens("second") == driver.tokens("first")[:20]
    # Nor does another echo take away what is there.
    _run(driver, "echo again", LONG, logprobs=wanted, max_tokens=60)
    assert _run(driver, "third", LONG) == 299


def test_a_long_reply_to_a_short_prompt_is_no_long_prompt() -> None:
    """Of a conversation that began with few words, the second turn finds what the first turn's repetition left."""
    driver = _quantized(32)
    _run(driver, "short", prompt_of(12), max_tokens=90)
    turn = [*prompt_of(12), *driver.tokens("short")[:70]]
    assert [_run(driver, f"turn{index}", turn) for index in range(2)] == [0, len(turn) - 1]


def test_room_is_asked_for_what_is_kept() -> None:
    """A short part of a long row fits where the whole row would not, and pushes out no more than it needs."""
    part_bytes = _kept_bytes(prompt_of(60))
    plan = LoopDriver(tiny_model("llama")).loop._parts.memory
    # What a turn of the long row needs beside its caches is no prefix's either.
    turn_bytes = plan.shared_bytes(1_000) + plan.sampling_bytes
    driver = LoopDriver(tiny_model("llama"), prefixes=StoreLimits(10 * part_bytes + turn_bytes))
    for index in range(4):
        _run(driver, f"kept{index}", prompt_of(60, index + 1))
    _stop_early(driver, prompt_of(1_000), kept_tokens=60)
    status = driver.prefixes.status()
    assert (status.entries, status.size_bytes, status.evictions) == (5, 5 * part_bytes, 0)
    small = LoopDriver(tiny_model("llama"), prefixes=StoreLimits(2 * part_bytes + turn_bytes))
    _stop_early(small, prompt_of(1_000), kept_tokens=60)
    assert [entry.length for entry in small.prefixes._store] == [60]


def _kept_bytes(prompt: list[int]) -> int:
    driver = LoopDriver(tiny_model("llama"))
    _run(driver, "row", prompt)
    return driver.prefixes.status().size_bytes


def _stop_early(driver: LoopDriver, prompt: list[int], kept_tokens: int) -> None:
    driver.submit("long", prompt, max_tokens=100)
    while not driver.tokens("long"):
        driver.turn()
    driver.cancel("long", "stop", keep_tokens=kept_tokens)
    driver.turn()


def test_only_rows_that_end_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many decode beside them; nor does a row that comes ask what those of other prompts hold."""
    asked: list[int] = []
    original = Holding.of_row

    def counting(group: Any, index: int) -> Holding | None:
        asked.append(index)
        return original(group, index)

    monkeypatch.setattr(Holding, "of_row", counting)
    driver = LoopDriver(tiny_model("llama"))
    for index in range(8):
        driver.submit(str(index), prompt_of(60, index), max_tokens=10 if index == 3 else 60)
    driver.turn(20)
    assert "3" not in driver.live_ids()
    assert asked == [3]


def test_rows_hold_no_entry_that_was_given_up(model: nn.Module) -> None:
    """E4: a row that began with an entry does not keep its bytes once they are needed."""
    driver = LoopDriver(model, prefixes=StoreLimits(1 << 30))
    prompt = prompt_of(2_000)
    _run(driver, "first", prompt, max_tokens=2)
    driver.submit("second", [*prompt, 7, 8, 9], max_tokens=200)
    driver.turn(5)
    assert driver.tokens("second")
    kept_bytes = driver.prefixes.status().size_bytes
    before_bytes = _held_bytes()
    driver.control("flush_prefixes", "")
    driver.turn()
    assert driver.live_ids() == ["second"]
    assert before_bytes - _held_bytes() > kept_bytes // 2


@pytest.fixture
def model() -> nn.Module:
    """Its caches are large beside what a step takes."""
    return wide_headed_model()


def _held_bytes() -> int:
    mx.synchronize()
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()
