"""Prefixes over an engine's loop: who leaves one, who takes one, and who never does."""

import gc
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from engine import decode, prefill
from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.cache.scheme import LayerScheme
from engine.prefix.store import StoreLimits
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import CancelReason, LogprobsWanted
from protocol.sampling import Sampling
from tests.fakes.adapters import build_adapter
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import fresh_model, prompt_of, tiny_model, wide_headed_model
from tests.parity.oracle import solo_tokens

CHUNK = 16
PROMPT = prompt_of(50)


def _driver(**options: Any) -> LoopDriver:
    return LoopDriver(tiny_model("llama"), **{"chunk_tokens": CHUNK, **options})


def _run(driver: LoopDriver, id_: str, prompt: list[int] | None = None, **changes: Any) -> int:
    """Runs a row to its end; returns how many of its prompt's tokens were there already."""
    driver.submit(id_, PROMPT if prompt is None else prompt, **changes)
    driver.run_until_idle()
    return driver.finish(id_).usage.cached_tokens


def tiny_cache_bytes() -> int:
    """Of one row's caches, however short it is: one step of columns."""
    driver = _driver()
    _run(driver, "row")
    return driver.prefixes.status().size_bytes


def test_what_was_there_is_told_with_the_first_token() -> None:
    """Whoever stops reading in mid text knows it; in a delta before the finish, once."""
    driver = _driver()
    _run(driver, "first")
    _run(driver, "second")
    told = [delta for delta in driver.deltas if delta.id == "second"]
    assert [delta.cached_tokens for delta in told] == [49, *[None] * (len(told) - 1)]
    assert told[0].finish is None
    assert all(delta.cached_tokens is None for delta in driver.deltas if delta.id == "first")


@pytest.mark.parametrize("reason", ["gone", "user", "stop"])
@pytest.mark.parametrize("turns", [1, 3, 12])
def test_a_row_that_its_client_ends_leaves_its_prefix(reason: CancelReason, turns: int) -> None:
    """E8: while its prompt is computed, just after, or in mid reply."""
    driver = _driver()
    driver.submit("running", prompt_of(5, 9), max_tokens=200)
    driver.turn(2)
    driver.submit("first", PROMPT)
    driver.turn(turns)
    driver.cancel("first", reason)
    driver.turn()
    driver.submit("second", PROMPT)
    driver.run_until_idle()
    cached = driver.finish("second").usage.cached_tokens
    assert cached == (49 if turns > 3 else min(49, CHUNK * turns))
    assert driver.tokens("second") == solo_tokens(tiny_model("llama"), PROMPT, 20)
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(5, 9), 200)


def test_a_stop_in_the_text_keeps_what_its_client_will_send_again() -> None:
    """E8: keep_tokens says how much of the row that is."""
    driver = _driver()
    driver.submit("first", PROMPT, max_tokens=60)
    driver.turn(30)
    said = driver.tokens("first")
    driver.cancel("first", "stop", keep_tokens=55)
    driver.turn()
    (entry,) = driver.prefixes._store
    assert entry.length == 55
    assert _run(driver, "second", [*PROMPT, *said, 7]) == 55


def test_a_deadline_and_a_lost_lease_leave_the_prefix_too() -> None:
    """The row was sound; whoever wakes up sends it again."""
    driver = _driver()
    driver.submit("late", PROMPT, max_tokens=60)
    driver.turn(10)
    driver.loop._roster.rows[next(iter(driver.loop._roster.rows))].deadline_at = 0.0
    driver.loop._roster._with_deadline.update(driver.loop._roster.rows.values())
    driver.run_until_idle()
    assert driver.finish("late").reason == "deadline"
    assert _run(driver, "again") == 49


@pytest.mark.parametrize("step", ["launch_forward", "read"])
def test_a_failed_row_leaves_nothing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """E8: neither do its neighbours in the forward that failed."""
    driver = _driver()
    for index in range(2):
        driver.submit(str(index), prompt_of(50, index), max_tokens=60)
    driver.turn(10)
    original = getattr(decode, step)

    def failing(*_: Any) -> Any:
        monkeypatch.setattr(decode, step, original)
        raise RuntimeError("the device is out")

    monkeypatch.setattr(decode, step, failing)
    driver.turn()
    assert [driver.finish(str(index)).code for index in range(2)] == [ErrorCode.DECODE_FAILED] * 2
    assert driver.prefixes.status().entries == 0
    assert [_run(driver, f"again{index}", prompt_of(50, index)) for index in range(2)] == [0, 0]


def test_what_was_copied_beside_a_step_that_failed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """E8: a row had left just before; its copy was made behind the same forward."""
    driver = _driver()
    driver.submit("short", PROMPT, max_tokens=8)
    driver.submit("long", prompt_of(50, 1), max_tokens=60)
    driver.turn()
    while "short" in driver.live_ids():
        driver.turn()
    assert driver.prefixes.status().entries == 1

    def failing(*_: Any) -> Any:
        raise RuntimeError("the device is out")

    monkeypatch.setattr(decode, "read", failing)
    driver.turn()
    assert driver.finish("long").reason == "error"
    assert driver.prefixes.status().entries == 0


def test_an_entry_that_fails_who_takes_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs one request, not each one after it."""
    driver = _driver()
    _run(driver, "first")
    original = prefill.launch_chunk
    monkeypatch.setattr(prefill, "launch_chunk", lambda *_: 1 / 0)
    driver.submit("second", [*PROMPT, 1, 2, 3])
    driver.turn()
    monkeypatch.setattr(prefill, "launch_chunk", original)
    assert driver.finish("second").code == ErrorCode.PREFILL_FAILED
    assert driver.prefixes.status().entries == 0
    assert _run(driver, "third") == 0


def test_salts_and_adapters_never_meet(tmp_path: Path) -> None:
    """E9: nor does an adapter that took the name of another, nor one that is gone."""
    driver = LoopDriver(fresh_model("llama"), chunk_tokens=CHUNK)
    folders = [build_adapter(tmp_path / name, "llama", seed) for seed, name in enumerate("ab")]
    driver.control("mount_adapter", f"sql={folders[0]}")
    driver.turn()
    scopes = [{}, {"cache_salt": "mine"}, {"cache_salt": ""}, {"adapter": "sql"}, {"adapter": "sql", "cache_salt": "x"}]
    for number, scope in enumerate(scopes):
        assert _run(driver, f"first{number}", **scope) == 0
        assert _run(driver, f"second{number}", **scope) == 49
    assert driver.prefixes.status().entries == 5
    driver.control("mount_adapter", f"sql={folders[1]}")
    driver.turn()
    assert driver.prefixes.status().entries == 3
    assert _run(driver, "other weights", adapter="sql") == 0
    driver.submit("old", PROMPT, adapter="sql", max_tokens=40)
    driver.turn(5)
    driver.control("unmount_adapter", "sql")
    driver.run_until_idle()
    assert driver.finish("old").reason == "length"
    assert all(entry.scope.adapter is None for entry in driver.prefixes._store)
    driver.control("mount_adapter", f"sql={folders[0]}")
    driver.turn()
    assert _run(driver, "back again", adapter="sql") == 0


def test_an_operator_empties_the_cache() -> None:
    """By command, which says what there was; the next row computes all."""
    driver = _driver()
    _run(driver, "first")
    kept = driver.prefixes.status()
    driver.control("flush_prefixes", "")
    driver.turn()
    assert driver.mailbox.answers == {"flush_prefixes ": None}
    assert driver.mailbox.dropped == {"flush_prefixes ": (1, kept.size_bytes)}
    assert (driver.prefixes.status().entries, driver.prefixes.status().size_bytes) == (0, 0)
    assert _run(driver, "second") == 0


def test_rows_that_live_lend_their_prefix() -> None:
    """A row that decodes, alone or in a batch, gives what it has to one that begins as it did; it goes on unchanged."""
    driver = _driver()
    driver.submit("first", PROMPT, max_tokens=60)
    driver.turn(4)
    others = {"second": [*PROMPT, 5, 6, 7], "third": [*PROMPT[:40], *prompt_of(30, 3)]}
    for id_, prompt in others.items():
        driver.submit(id_, prompt, max_tokens=40)
        driver.turn(4)
    driver.run_until_idle()
    assert [driver.finish(id_).usage.cached_tokens for id_ in ("first", "second", "third")] == [0, 50, 40]
    assert driver.tokens("first") == solo_tokens(tiny_model("llama"), PROMPT, 60)
    assert [driver.tokens(id_) for id_ in others] == [
        solo_tokens(tiny_model("llama"), prompt, 40) for prompt in others.values()
    ]
    assert driver.prefixes.status().live == 2


def test_choices_share_what_their_prompt_found() -> None:
    """D5: n=3 with a hit: one lookup, three rows, each as alone."""
    driver = _driver()
    _run(driver, "first")
    for choice in range(3):
        hot = Sampling(temperature=1.0)
        driver.submit(f"n{choice}", PROMPT, group="n", choice=choice, seed=choice, sampling=hot)
    driver.run_until_idle()
    assert [driver.finish(f"n{choice}").usage.cached_tokens for choice in range(3)] == [49] * 3
    assert driver.prefixes.status().exact == 1
    for choice in range(3):
        alone = _driver()
        alone.submit("row", PROMPT, seed=choice, sampling=Sampling(temperature=1.0))
        alone.run_until_idle()
        assert driver.tokens(f"n{choice}") == alone.tokens("row")


def test_a_prompts_own_log_probabilities_need_all_of_it() -> None:
    """An echo with log-probabilities computes every token, and says that nothing was there; what it leaves is sound."""
    wanted = LogprobsWanted(of_prompt=True)
    driver = _driver()
    assert _run(driver, "first", logprobs=wanted) == 0
    assert _run(driver, "second", logprobs=wanted) == 0
    told = {
        id_: [entry for delta in driver.deltas if delta.id == id_ for entry in delta.prompt_logprobs or ()]
        for id_ in ("first", "second")
    }
    assert len(told["first"]) == 50
    assert told["first"] == told["second"]
    assert driver.prefixes.status().unasked == 2
    assert _run(driver, "third") == 49


def test_a_replayed_row_finds_what_it_had_generated() -> None:
    """After a lost lease the row goes on after `generated`; of its prompt all is there, and it is told no more."""
    driver = _driver()
    _run(driver, "first", max_tokens=30)
    said = driver.tokens("first")
    driver.submit("again", PROMPT, max_tokens=30, generated=pack_ids(said[:10]))
    driver.run_until_idle()
    assert driver.tokens("again") == said[10:]
    assert driver.finish("again").usage.cached_tokens == 50


def test_short_prompts_go_together_as_before(events: list[str]) -> None:
    """What is shorter than a quarter chunk is worth no chunk of its own."""
    driver = LoopDriver(tiny_model("llama"))
    for turn in range(2):
        for index in range(4):
            driver.submit(f"{turn}{index}", [*prompt_of(12), *prompt_of(8, index)], max_tokens=4)
        driver.run_until_idle()
    assert events.count("launch_together") == 2
    assert driver.prefixes.status().hits == 0


def test_the_cache_can_be_off() -> None:
    """Nothing is kept, asked or counted; rows run as before."""
    for limits in (StoreLimits(0), StoreLimits(1 << 30, 0)):
        driver = _driver(prefixes=limits)
        assert [_run(driver, id_) for id_ in ("first", "second")] == [0, 0]
        status = driver.prefixes.status()
        assert (status.entries, status.hits, status.misses, status.limit_bytes) == (0, 0, 0, 0)


def test_live_rows_push_entries_out() -> None:
    """E4: under a ceiling for three prompts and a turn, rows that come find the cache giving way, and finish."""
    row_bytes = tiny_cache_bytes()
    plan = _driver().loop._parts.memory
    ceiling_bytes = 2 * row_bytes + plan.alone_bytes(50)
    driver = _driver(prefixes=StoreLimits(ceiling_bytes))
    for index in range(3):
        _run(driver, f"kept{index}", prompt_of(50, index))
    assert driver.prefixes.status().entries == 3
    for index in range(3):
        driver.submit(f"new{index}", prompt_of(50, 10 + index), max_tokens=100)
    driver.turn(20)
    driver.loop._publish()
    live_bytes = driver.loop._live_bytes
    status = driver.prefixes.status()
    assert live_bytes > row_bytes
    assert status.size_bytes <= max(0, ceiling_bytes - live_bytes)
    assert status.evictions > 0
    driver.run_until_idle()
    assert all(driver.finish(f"new{index}").reason == "length" for index in range(3))


def test_bytes_are_what_is_held() -> None:
    """E5: after many different prompts, in batches and alone, what is reported is what the device holds more."""
    driver = _driver(prefixes=StoreLimits(5 * tiny_cache_bytes()))
    _run(driver, "warm")
    driver.control("flush_prefixes", "")
    driver.turn()
    before_bytes = _held_bytes()
    for index in range(40):
        driver.submit(str(index), prompt_of(30 + index, index), max_tokens=5)
        if index % 3 == 0:
            driver.run_until_idle()
    driver.run_until_idle()
    driver.prefixes.proven()
    status = driver.prefixes.status()
    assert 0 < status.size_bytes <= status.limit_bytes
    held_bytes = _held_bytes() - before_bytes
    # Arrays on a CPU have a header each.
    assert status.size_bytes <= held_bytes <= status.size_bytes * 1.02 + 4_096


@pytest.mark.parametrize("scheme", [None, LayerScheme(8, 32)], ids=["plain", "quantized"])
def test_a_short_part_of_a_long_row_holds_its_own_bytes_alone(scheme: LayerScheme | None) -> None:
    """E5: a row that is stopped long behind what its client will send again does not leave its whole buffers."""
    model = wide_headed_model()
    plan = DEFAULT_PLAN if scheme is None else CachePlan(quantized=dict.fromkeys(range(len(model.layers)), scheme))
    driver = LoopDriver(model, cache_plan=plan)
    _run(driver, "warm")
    driver.control("flush_prefixes", "")
    driver.turn()
    before_bytes = _held_bytes()
    driver.submit("long", prompt_of(2_000), max_tokens=200)
    driver.turn(40)
    assert driver.tokens("long")
    driver.cancel("long", "stop", keep_tokens=55)
    driver.turn()
    driver.prefixes.proven()
    (entry,) = driver.prefixes._store
    assert entry.length == 55
    held_bytes = _held_bytes() - before_bytes
    # MLX copies no array to save 16 KiB of it.
    arrays = len(tree_flatten([cache.state[:2] for cache in entry.caches]))
    assert entry.size_bytes <= held_bytes <= entry.size_bytes + arrays * 16_384


def _held_bytes() -> int:
    mx.synchronize()
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


def test_rows_that_come_together_compute_what_they_share_once() -> None:
    """A fan-out: eight rows with one long beginning, and one of another: each says what it would say alone."""
    driver = _driver()
    prompts = {f"agent{index}": [*prompt_of(150), *prompt_of(20, index + 1)] for index in range(8)}
    prompts["stranger"] = prompt_of(60, 30)
    for id_, prompt in prompts.items():
        driver.submit(id_, prompt, max_tokens=10)
    driver.run_until_idle()
    for id_, prompt in prompts.items():
        assert driver.tokens(id_) == solo_tokens(tiny_model("llama"), prompt, 10)
    assert [driver.finish(f"agent{index}").usage.cached_tokens for index in range(8)] == [0, *[150] * 7]
    assert driver.loop._roster.tally.prompt_tokens == 150 + 8 * 20 + 60
    status = driver.prefixes.status()
    assert (status.live + status.cut + status.snapshot, status.misses) == (7, 2)


def test_who_waits_for_a_row_that_is_cancelled_goes_on_from_what_it_left() -> None:
    """And the next one waits for that one."""
    driver = _driver()
    driver.submit("running", prompt_of(5, 9), max_tokens=100)
    driver.turn(2)
    prompts = [[*prompt_of(150), *prompt_of(20, index + 1)] for index in range(3)]
    for index, prompt in enumerate(prompts):
        driver.submit(str(index), prompt, max_tokens=10)
    driver.turn(4)
    driver.cancel("0")
    driver.run_until_idle()
    assert [driver.finish(str(index)).usage.cached_tokens for index in (1, 2)] == [64, 150]
    assert [driver.tokens(str(index)) for index in (1, 2)] == [
        solo_tokens(tiny_model("llama"), prompts[index], 10) for index in (1, 2)
    ]


def test_a_row_waits_for_no_other_scope_and_for_no_short_beginning() -> None:
    """Each has its own chunk in turn, as before."""
    driver = _driver()
    driver.submit("first", prompt_of(80))
    driver.submit("salted", prompt_of(80), cache_salt="x")
    driver.submit("alike", [*prompt_of(CHUNK), *prompt_of(60, 4)])
    driver.loop._hear(0)
    driver.loop._admit()
    assert [row.prefix.leader for row in driver.loop._prefilling.rows] == [None] * 3
    driver.run_until_idle()
    assert driver.tokens("alike") == solo_tokens(tiny_model("llama"), [*prompt_of(CHUNK), *prompt_of(60, 4)], 20)
