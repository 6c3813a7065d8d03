"""Rows that give way to memory: each goes on later as if nothing had been, and somebody always advances."""

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory_plan import MemoryPlan
from engine.prefix.store import StoreLimits
from protocol.errors import ErrorCode
from protocol.messages import Grammar, LogprobsWanted, SubmitId
from protocol.sampling import Sampling
from tests.engine.cache.twins import arrays
from tests.fakes.loop_driver import OFF, LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.kinds import ALL, alone, driver_of
from tests.parity.oracle import solo_tokens

HOT = Sampling(temperature=0.9)
PENALISED = Sampling(temperature=0.7, repetition_penalty=1.3, presence_penalty=0.4, presence_context=0, top_k=40)
SCHEMA = Grammar(
    kind="json_schema", text='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}}}'
)
WANTED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"sampling": HOT, "seed": 11},
    "penalised": {"sampling": PENALISED, "seed": 12},
    "scored": {"logprobs": LogprobsWanted(top=3)},
    "prompt scored": {"logprobs": LogprobsWanted(top=1, of_prompt=True)},
    "least": {"min_tokens": 30, "stop_ids": (7, 9, 30, 60, 90)},
    "grammar": {"grammar": SCHEMA, "sampling": HOT, "seed": 13},
}


def plan_of(driver: LoopDriver) -> MemoryPlan:
    """What the driver's loop goes by."""
    return driver.loop._parts.memory


def budget_for(driver: LoopDriver, rows: float, tokens: int) -> int:
    """Bytes for so many rows of this length, and what a turn needs."""
    plan = plan_of(driver)
    return int(rows * plan.start_bytes(tokens)) + plan.shared_bytes(tokens)


def preempt(driver: LoopDriver, id_: str) -> None:
    """Has a row give way between two turns."""
    (row,) = [row for key, row in driver.loop._roster.rows.items() if key.id == id_]
    driver.loop._preemption._preempt(row)
    driver.loop._remove_ended()


# Registers and offsets of a few rows.
SMALL_BYTES = 8_192
# MLX gives a copy of a part the whole buffer, if that is no wider than by so much.
SHARED_BYTES = 16_384


def _slack_bytes(driver: LoopDriver) -> int:
    """What may be held beside what caches count, over their arrays."""
    loop = driver.loop
    held = [group.caches for group in (*loop._batch.groups, *loop._prefilling.ready)]
    held += [row.caches or [] for row in loop._prefilling.rows]
    held += [entry.caches for entry in driver.prefixes._store]
    return SMALL_BYTES + SHARED_BYTES * sum(len(arrays(cache)) for caches in held for cache in caches)


class _Watched:
    """A driver whose memory is looked at after every turn."""

    def __init__(self, driver: LoopDriver, before_bytes: int) -> None:
        self.driver = driver
        self._before_bytes = before_bytes
        self.most_rows = 0

    def turn(self) -> None:
        self.driver.turn()
        mx.synchronize()
        loop = self.driver.loop
        kept_bytes = self.driver.prefixes.status().size_bytes
        ledger_bytes = loop._ledger.size_bytes
        assert mx.get_active_memory() - self._before_bytes <= ledger_bytes + kept_bytes + _slack_bytes(self.driver)
        assert ledger_bytes + kept_bytes <= loop._ledger.budget_bytes
        self.most_rows = max(self.most_rows, loop._ledger.live_rows)

    def run_until_idle(self, limit: int = 6_000) -> None:
        self.turn()
        while self.driver.live_ids():
            self.turn()
            assert self.driver.turns < limit


def _watched(kind: str, rows: float, tokens: int) -> _Watched:
    budget_bytes = budget_for(driver_of(kind), rows, tokens)
    alone(kind, 5, 0, 2)
    mx.clear_cache()
    before_bytes = mx.get_active_memory()
    limits = StoreLimits(budget_bytes)
    driver = driver_of(kind, budget_bytes=budget_bytes, prefixes=limits)
    return _Watched(driver, before_bytes)


@pytest.mark.parametrize("kind", ALL)
def test_five_rows_in_room_for_two_and_a_half(kind: str) -> None:
    """E1: all finish with their own words; at each turn measured bytes are within the ledger, it within the budget."""
    expected = [alone(kind, 200 + 9 * index, index, 90) for index in range(5)]
    watched = _watched(kind, 2.5, 300)
    for index in range(5):
        watched.driver.submit(str(index), prompt_of(200 + 9 * index, index), max_tokens=90)
    watched.run_until_idle()
    assert [watched.driver.tokens(str(index)) for index in range(5)] == expected
    assert watched.most_rows >= 2


@pytest.mark.parametrize("weights_bytes", [1 << 30, 1 << 14])
@pytest.mark.parametrize("prefixes", [StoreLimits(1 << 30), OFF])
def test_growth_makes_the_youngest_give_way(weights_bytes: int, prefixes: StoreLimits) -> None:
    """E1: rows that start together and outgrow the budget; also where padded rows are split first."""
    lengths = [230, 40, 20, 235, 60, 200]
    expected = [alone("plain", length, index, 300) for index, length in enumerate(lengths)]
    driver = driver_of("plain")
    budget_bytes = budget_for(driver, 3.2, 300)
    mx.clear_cache()
    before_bytes = mx.get_active_memory()
    limits = StoreLimits(budget_bytes if prefixes is not OFF else 0)
    driver = driver_of("plain", weights_bytes, budget_bytes=budget_bytes, prefixes=limits)
    watched = _Watched(driver, before_bytes)
    for index, length in enumerate(lengths):
        driver.submit(str(index), prompt_of(length, index), max_tokens=300)
    watched.run_until_idle()
    assert [driver.tokens(str(index)) for index in range(len(lengths))] == expected
    assert 0 < driver.loop._tally.preemptions <= 2 * len(lengths)
    for index, length in enumerate(lengths):
        usage = driver.finish(str(index)).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (length, 300, 0)


def _said(driver: LoopDriver, id_: str) -> tuple[Any, ...]:
    """Everything that a row was told, numbers rounded."""
    deltas = [delta for delta in driver.deltas if delta.id == id_]
    scores = [
        (round(entry.logprob, 3), entry.top_ids, tuple(round(each, 3) for each in entry.top))
        for delta in deltas
        for entry in delta.logprobs or ()
    ]
    of_prompt = [
        None if entry is None else (round(entry.logprob, 3), entry.top_ids)
        for delta in deltas
        for entry in delta.prompt_logprobs or ()
    ]
    finish = driver.finish(id_)
    return driver.tokens(id_), scores, of_prompt, finish.reason, finish.usage, finish.stop_id


@pytest.mark.parametrize("turns", [1, 2, 3, 7, 20, 41])
@pytest.mark.parametrize("name", WANTED)
def test_a_row_goes_on_as_if_nothing_had_been(name: str, turns: int) -> None:
    """D3: the same tokens, scores, end and usage, whenever it gave way; its neighbours do not notice."""
    runs: list[list[tuple[Any, ...]]] = []
    for is_preempted in (False, True):
        driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
        driver.submit("first", prompt_of(9, 3), max_tokens=60)
        driver.submit("row", prompt_of(40), max_tokens=45, **WANTED[name])
        driver.submit("last", prompt_of(21, 5), max_tokens=50, sampling=HOT, seed=3)
        driver.turn(turns)
        if is_preempted and "row" in driver.live_ids():
            waiting = {row.key.id for row in driver.loop._admission.waiting}
            if "row" not in waiting:
                preempt(driver, "row")
        driver.run_until_idle()
        runs.append([_said(driver, id_) for id_ in ("first", "row", "last")])
    assert runs[0] == runs[1]


def test_a_row_may_give_way_again_and_again() -> None:
    """Every few tokens, alone and beside others, at every split of its reply."""
    expected = LoopDriver(tiny_model("llama"))
    expected.submit("row", prompt_of(20), max_tokens=40, sampling=HOT, seed=4)
    expected.run_until_idle()
    driver = LoopDriver(tiny_model("llama"), prefixes=OFF)
    driver.submit("row", prompt_of(20), max_tokens=40, sampling=HOT, seed=4)
    driver.submit("other", prompt_of(8, 1), max_tokens=60)
    driver.turn()
    while "row" in driver.live_ids():
        if not driver.loop._admission.waiting:
            preempt(driver, "row")
        driver.turn(2)
    driver.run_until_idle()
    assert driver.tokens("row") == expected.tokens("row")
    assert driver.loop._tally.preemptions > 10


def test_what_a_row_held_is_kept_where_there_is_room() -> None:
    """Its prefix is found again, and usage does not count it: nobody else had computed it."""
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("other", prompt_of(8, 1), max_tokens=60)
    driver.submit("row", prompt_of(200), max_tokens=40)
    driver.turn(6)
    preempt(driver, "row")
    entries = driver.prefixes.status()
    assert entries.entries == 1
    driver.run_until_idle()
    assert driver.prefixes.status().queried_tokens == entries.queried_tokens
    assert driver.loop._tally.prompt_tokens < 8 + 200 + 60
    assert driver.finish("row").usage.cached_tokens == 0
    assert driver.tokens("row") == solo_tokens(tiny_model("llama"), prompt_of(200), 40)


def test_a_row_that_waits_for_its_place_may_end() -> None:
    """Cancelled, or past its deadline: one end, with what it had said; nothing is left of it."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=2))
    driver.submit("a", prompt_of(9), max_tokens=30)
    driver.submit("b", prompt_of(9, 1), max_tokens=30)
    driver.submit("c", prompt_of(9, 2), max_tokens=30)
    driver.turn(5)
    preempt(driver, "b")
    driver.cancel("b")
    driver.run_until_idle()
    said = driver.tokens("b")
    assert (driver.finish("b").reason, driver.finish("b").usage.completion_tokens) == ("cancelled", len(said))
    assert said == solo_tokens(tiny_model("llama"), prompt_of(9, 1), 30)[: len(said)] != []
    assert [driver.finish(id_).reason for id_ in "ac"] == ["length", "length"]


def test_it_is_the_next_of_its_priority() -> None:
    """Before those that came later, behind those of a higher priority."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=2))
    driver.submit("a", prompt_of(9), max_tokens=30)
    driver.submit("b", prompt_of(9, 1), max_tokens=30)
    driver.turn(3)
    driver.submit("late", prompt_of(9, 2), max_tokens=3)
    driver.submit("urgent", prompt_of(9, 3), max_tokens=3, priority=1)
    driver.loop._hear(0)
    preempt(driver, "b")
    assert [row.key.id for row in driver.loop._admission.waiting] == ["urgent", "b", "late"]


def test_the_lowest_priority_gives_way_and_then_the_youngest() -> None:
    """Never the oldest of the highest; a row alone never does."""
    driver = LoopDriver(tiny_model("llama"))
    for id_, priority in (("old low", 0), ("old", 1), ("young", 1), ("young low", 0)):
        driver.submit(id_, prompt_of(9), max_tokens=30, priority=priority)
    driver.turn(3)
    order: list[str] = []
    while (row := driver.loop._preemption._victim()) is not None:
        order.append(row.key.id)
        preempt(driver, row.key.id)
    assert order == ["young low", "old low", "young"]


def test_the_status_says_who_waits_for_memory() -> None:
    """The ledger of the budget, rows that only lack room, and how often one gave way."""
    driver = driver_of("plain")
    budget_bytes = budget_for(driver, 1.5, 300)
    driver = driver_of("plain", budget_bytes=budget_bytes)
    for index in range(3):
        driver.submit(str(index), prompt_of(290, index), max_tokens=5)
    driver.turn()
    driver.loop._publish()
    status = driver.board.status()
    assert (status.rows.waiting, status.rows.waiting_for_memory) == (2, 2)
    assert 0 < status.memory.ledger_bytes <= status.memory.budget_bytes == budget_bytes
    driver.run_until_idle()
    driver.submit("a", prompt_of(9), max_tokens=9)
    driver.submit("b", prompt_of(9, 1), max_tokens=9)
    driver.turn(2)
    preempt(driver, "b")
    driver.run_until_idle()
    status = driver.board.status()
    assert (status.rows.waiting_for_memory, status.counters.preemptions) == (0, 1)


def test_a_big_head_is_not_passed() -> None:
    """B4: a small row behind it waits, too; one of a higher priority does not."""
    driver = driver_of("plain")
    driver = driver_of("plain", budget_bytes=budget_for(driver, 2.0, 400))
    driver.submit("running", prompt_of(300), max_tokens=60)
    driver.turn(2)
    driver.submit("big", prompt_of(700, 1), max_tokens=5)
    driver.submit("small", prompt_of(5, 2), max_tokens=5)
    driver.submit("urgent", prompt_of(5, 3), max_tokens=5, priority=1)
    driver.turn(5)
    assert {row.key.id for row in driver.loop._batch} == {"running", "urgent"}
    while driver.live_ids():
        waiting = [row.key.id for row in driver.loop._admission.waiting]
        assert waiting in (["big", "small"], ["small"], [])
        driver.turn()
    first = [delta.id for delta in driver.deltas if delta.tokens]
    assert "big" not in first[: len(first) - first[::-1].index("running")]
    assert len(driver.tokens("small")) == 5


@pytest.mark.parametrize(("rows", "together"), [(2.5, False), (4.5, True)])
def test_the_choices_of_one_request(rows: float, together: bool) -> None:
    """n=4: they start together where memory ever holds them, else as many as it does, then the rest; none is lost."""
    budget_bytes = budget_for(driver_of("plain"), rows, 250)
    driver = driver_of("plain", budget_bytes=budget_bytes, prefixes=StoreLimits(budget_bytes))
    driver.submit("before", prompt_of(100, 9), max_tokens=30)
    driver.turn(2)
    for choice in range(4):
        driver.submit(f"c{choice}", prompt_of(250), group="c", max_tokens=60, sampling=HOT, seed=choice)
    most = 0
    driver.turn()
    while driver.live_ids():
        driver.turn()
        decoding = {row.key.id for row in driver.loop._batch}
        choices = len([id_ for id_ in decoding if id_.startswith("c")])
        assert not together or driver.loop._tally.preemptions or choices in (0, 4)
        most = max(most, choices)
    assert (most == 4) == together
    roomy = driver_of("plain")
    for choice in range(4):
        roomy.submit(f"c{choice}", prompt_of(250), group="c", max_tokens=60, sampling=HOT, seed=choice)
    roomy.run_until_idle()
    assert [driver.tokens(f"c{choice}") for choice in range(4)] == [roomy.tokens(f"c{choice}") for choice in range(4)]


def test_scores_of_a_prompt_that_have_no_room_are_refused() -> None:
    """With the figures and what to change; the same prompt without them runs."""
    budget_bytes = budget_for(driver_of("plain"), 1.0, 300)
    driver = driver_of("plain", budget_bytes=budget_bytes)
    driver.submit("scored", prompt_of(300), max_tokens=3, logprobs=LogprobsWanted(top=1, of_prompt=True))
    driver.submit("plain", prompt_of(300), max_tokens=3)
    driver.run_until_idle()
    error = driver.mailbox.rejected[SubmitId("scored")]
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, "logprobs")
    for part in ("300 tokens", str(budget_bytes), "--kv-cache-memory-bytes"):
        assert part in error.message
    assert len(driver.tokens("plain")) == 3


def test_half_a_prompt_gives_way_and_who_waited_for_it_goes_on() -> None:
    """A row that computes what others begin with gives its caches back; they compute it themselves."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16, prefixes=StoreLimits(1 << 30))
    driver.submit("running", prompt_of(9, 7), max_tokens=40)
    driver.turn(2)
    driver.submit("leader", prompt_of(150), max_tokens=5)
    driver.submit("follower", [*prompt_of(140), 9, 9, 9], max_tokens=5)
    driver.turn(3)
    preempt(driver, "leader")
    driver.run_until_idle()
    assert driver.tokens("leader") == solo_tokens(tiny_model("llama"), prompt_of(150), 5)
    assert driver.tokens("follower") == solo_tokens(tiny_model("llama"), [*prompt_of(140), 9, 9, 9], 5)


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(1, 330),
        st.integers(1, 120),
        st.integers(0, 2),
        st.integers(1, 3),
        st.none() | st.integers(1, 25),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=15, deadline=None)
@given(arrivals=ARRIVALS, rows=st.floats(1.0, 3.5), keeps=st.booleans())
def test_any_arrivals_end_once_within_the_budget(arrivals: list[Any], rows: float, keeps: bool) -> None:
    """Random sizes, priorities, choices and cancels: nothing hangs, no row is lost, the ledger and the cap hold."""
    model = tiny_model("llama")
    facts = facts_of(model, max_rows=5)
    budget_bytes = budget_for(LoopDriver(model, facts), rows, 450)
    driver = LoopDriver(model, facts, budget_bytes=budget_bytes, prefixes=StoreLimits(budget_bytes if keeps else 0))
    ids: list[str] = []
    cancels: dict[int, list[str]] = {}
    for number, (pause, length, count, priority, choices, cancelled_after) in enumerate(arrivals):
        for _ in range(pause):
            driver.turn()
        for choice in range(choices):
            ids.append(f"{number}-{choice}")
            driver.submit(
                ids[-1], prompt_of(length, number), group=str(number), max_tokens=count, priority=priority, seed=choice
            )
        if cancelled_after is not None:
            cancels.setdefault(driver.turns + cancelled_after, []).append(ids[-1])
    for _ in range(8_000):
        for id_ in cancels.pop(driver.turns, []):
            driver.cancel(id_)
        driver.turn()
        ledger = driver.loop._ledger
        assert ledger.size_bytes + driver.prefixes.status().size_bytes <= budget_bytes
        assert ledger.live_rows <= 5
        if not driver.live_ids():
            break
    assert driver.live_ids() == []
    wanted = {f"{number}-{choice}": each[2] for number, each in enumerate(arrivals) for choice in range(each[4])}
    for id_ in ids:
        finish = driver.finish(id_)
        assert finish.reason == "cancelled" or len(driver.tokens(id_)) == wanted[id_]
    assert driver.loop._tally.preemptions <= 3 * len(ids)
