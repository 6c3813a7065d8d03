"""Whose chunk is next: much shorter prompts pass, nobody waits without bound, equals keep their order."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gap import Gap
from engine.prefill_order import MOST_HALF_WAY, PrefillOrder
from engine.row import Row, RowKey, make_row
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from tests.fakes.loop_driver import EPOCH, facts_of
from tests.fakes.models import tiny_model

CHUNK_TOKENS = 100


def _row(name: str, tokens: int, priority: int = 0) -> Row:
    prompt = TokenPrompt(ids=pack_ids([5] * tokens))
    submit = Submit(epoch=EPOCH, id=SubmitId(name), group=name, model="model", prompt=prompt, priority=priority)
    return make_row(RowKey(b"client", submit.id), submit, facts_of(tiny_model("llama"), context_length=1 << 20), 0.0)


@dataclass
class Work:
    """One launch: who was in it, how many tokens, and who was half way after it."""

    names: list[str]
    tokens: int
    half_way: int


@dataclass
class Device:
    """Computes the prompts of rows one launch after another, by the order under test."""

    waiting: list[Row] = field(default_factory=list)
    done: list[Work] = field(default_factory=list)
    order: PrefillOrder = field(default_factory=lambda: PrefillOrder(CHUNK_TOKENS))

    def launch(self) -> list[str]:
        """Returns the names of the rows that were in it."""
        turn = self.order.turn(self.waiting)
        company = self.order.company(turn, self.waiting)
        rows = Gap(CHUNK_TOKENS).rows_together(company, turn.allowance_tokens) or [turn.row]
        widths = [min(CHUNK_TOKENS, row.remaining_prefill_tokens - 1) for row in rows]
        tokens = len(rows) * max(widths) if len(rows) > 1 else max(widths[0], 1)
        for row, width in zip(rows, widths, strict=True):
            row.prefilled += width
        self.order.charge(turn, tokens)
        self.waiting = [row for row in self.waiting if row.remaining_prefill_tokens > 1]
        names = [row.key.id for row in rows]
        self.done.append(Work([*names], tokens, sum(row.prefilled > 0 for row in self.waiting)))
        return [*names]

    def run(self) -> list[str]:
        """Runs until nothing is left; returns the rows in the order in which they were through."""
        through: list[str] = []
        while self.waiting:
            before = [row.key.id for row in self.waiting]
            self.launch()
            left = {row.key.id for row in self.waiting}
            through += [name for name in before if name not in left]
        return through


def _device(**tokens: int) -> Device:
    return Device([_row(name, count) for name, count in tokens.items()])


@pytest.mark.parametrize(
    ("tokens", "through"),
    [
        ({"long": 5_000, "short": 31}, ["short", "long"]),
        ({"long": 5_000, "middle": 1_500, "short": 31}, ["short", "middle", "long"]),
        ({"long": 5_000, "shorter": 2_500}, ["shorter", "long"]),
        ({"long": 5_000, "shorter": 2_501}, ["long", "shorter"]),  # it would not wait much longer than it takes
        ({"first": 150, "second": 31}, ["first", "second"]),  # a chunk is more than half of it
        ({"long": 5_000, "a": 900, "b": 700, "c": 40}, ["c", "a", "b", "long"]),
        ({"a": 800, "b": 800, "c": 800}, ["a", "b", "c"]),
    ],
)
def test_much_shorter_prompts_pass(tokens: dict[str, int], through: list[str]) -> None:
    """A prompt goes before those that came earlier and are at least twice as long, and before no other."""
    assert _device(**tokens).run() == through


def test_a_short_prompt_waits_for_one_chunk_of_a_long_one() -> None:
    """It comes while the long one is computed, and is next."""
    device = _device(long=5_000)
    for _ in range(7):
        device.launch()
    device.waiting.append(_row("short", 31))
    assert [device.launch(), device.launch()] == [["short"], ["long"]]


def test_short_prompts_that_pass_share_a_chunk() -> None:
    """As they do with nobody before them, but within what the long one has to give."""
    device = _device(long=500, **{f"short-{index}": 61 for index in range(5)})
    assert device.launch() == ["short-0", "short-1", "short-2", "short-3"]
    assert device.launch() == ["long"]


def test_endless_short_prompts_get_a_third_of_the_launches() -> None:
    """Once as many have passed as half of the long prompt is worth; without the end of it, that would be all."""
    device = _device(long=5_000)
    for turn in range(50):
        device.waiting.append(_row(str(turn), 31))
        device.launch()
    who = ["long" if work.names == ["long"] else "short" for work in device.done]
    assert who[:24] == ["short"] * 24
    assert who[26:50].count("long") == 16


def test_a_middle_prompt_is_not_starved_by_short_ones() -> None:
    """Short prompts that keep coming pass it, but by no more than its own length: it need not wait to be first."""
    device = _device(long=50_000, middle=2_000)
    for turn in range(60):
        device.waiting.append(_row(str(turn), 31))
        device.launch()
    assert "middle" not in {row.key.id for row in device.waiting}
    assert sum("middle" in work.names for work in device.done) == 20


def test_no_shorter_prompt_of_a_lower_priority_passes() -> None:
    """Nor does it ride along in a chunk: what is more urgent is computed as if nobody else were there."""
    device = Device([_row("urgent", 500, 1), _row("also", 31, 1), _row("short", 31), _row("long", 900)])
    assert device.run() == ["also", "urgent", "short", "long"]
    assert device.done[0].names == ["also"]


def test_a_prompt_half_way_waits_for_a_more_urgent_one() -> None:
    """However long that is."""
    device = _device(long=500)
    device.launch()
    device.waiting.insert(0, _row("urgent", 5_000, 1))
    assert device.run() == ["urgent", "long"]


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([2, 31, 99, 101, 400, 950, 2_000, 6_100])), max_size=14
)


def _computed(arrivals: list[tuple[int, int]]) -> tuple[Device, dict[str, int], dict[str, int]]:
    """What the device did, and for each row the launches before it came and when it was through.

    arrivals: launches since the arrival before, and tokens.
    """
    device = Device()
    came: dict[str, int] = {}
    through: dict[str, int] = {}

    def launch() -> None:
        device.launch()
        left = {row.key.id for row in device.waiting}
        through.update({name: len(device.done) for name in came if name not in left and name not in through})

    for number, (launches, tokens) in enumerate(arrivals):
        for _ in range(launches):
            if device.waiting:
                launch()
        came[str(number)] = len(device.done)
        device.waiting.append(_row(str(number), tokens))
    while device.waiting:
        launch()
    return device, came, through


@settings(deadline=None)
@given(ARRIVALS)
def test_nobody_waits_twice_as_long_as_in_the_order_of_arrival(arrivals: list[tuple[int, int]]) -> None:
    """What is computed for later rows while a row waits is no more than the prompts up to its own have tokens."""
    device, came, through = _computed(arrivals)
    assert set(through) == set(came)
    for number, (_, own_tokens) in enumerate(arrivals):
        name = str(number)
        earlier = [other for other in range(number) if through[str(other)] > came[name]]
        up_to_own = own_tokens + sum(arrivals[other][1] for other in earlier)
        later = [
            work for work in device.done[came[name] : through[name]] if all(int(other) > number for other in work.names)
        ]
        assert sum(work.tokens for work in later) <= up_to_own
        assert len(later) <= up_to_own / CHUNK_TOKENS


@settings(deadline=None)
@given(ARRIVALS)
def test_few_prompts_are_half_way_at_once(arrivals: list[tuple[int, int]]) -> None:
    """Each holds its KV while it waits."""
    device, _, _ = _computed(arrivals)
    assert max((work.half_way for work in device.done), default=0) <= MOST_HALF_WAY


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(500, 999)), max_size=12))
def test_prompts_of_one_size_are_computed_in_order(arrivals: list[tuple[int, int]]) -> None:
    """Nobody passes where the longest is less than twice as long as the shortest: turns would make all of them late."""
    device, _, _ = _computed(arrivals)
    names = [name for work in device.done for name in work.names]
    assert names == sorted(names, key=int)
