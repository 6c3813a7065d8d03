"""What the loop computes of several prompts, in which order, and what it says of those that wait."""

from typing import Any

import pytest

from engine import prefill
from engine.prefill_order import MOST_HALF_WAY
from protocol.errors import ErrorCode
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

CHUNK_TOKENS = 16


class Launches(list[str]):
    """Ids of the rows of each launch, joined. arrivals: by so many launches, what then comes."""

    def __init__(self, driver: LoopDriver) -> None:
        super().__init__()
        self.driver = driver
        self.arrivals: dict[int, list[tuple[str, list[int]]]] = {}

    def note(self, ids: list[str]) -> None:
        """A chunk of these rows is launched."""
        self.append("+".join(ids))
        for id_, prompt in self.arrivals.pop(len(self), ()):
            self.driver.submit(id_, prompt, max_tokens=6)


@pytest.fixture
def driver() -> LoopDriver:
    """A loop over a tiny llama, whose chunks are short."""
    return LoopDriver(tiny_model("llama"), chunk_tokens=CHUNK_TOKENS)


@pytest.fixture
def launches(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Whose chunks were launched."""
    recorded = Launches(driver)
    alone, together = prefill.launch_chunk, prefill.launch_together

    def recording_alone(model: Any, row: Any, chunk_tokens: int) -> int:
        recorded.note([row.key.id])
        return alone(model, row, chunk_tokens)

    def recording_together(model: Any, kinds: Any, rows: Any) -> Any:
        recorded.note([row.key.id for row in rows])
        return together(model, kinds, rows)

    monkeypatch.setattr(prefill, "launch_chunk", recording_alone)
    monkeypatch.setattr(prefill, "launch_together", recording_together)
    return recorded


def _assert_solo(driver: LoopDriver, prompts: dict[str, list[int]]) -> None:
    assert {id_: driver.tokens(id_) for id_ in prompts} == {
        id_: solo_tokens(tiny_model("llama"), prompt, 6) for id_, prompt in prompts.items()
    }


def test_a_short_prompt_waits_for_one_chunk_of_a_long_one(driver: LoopDriver, launches: Launches) -> None:
    """Nobody decodes, a long prompt is under way: what comes is next, has its token at once, and both keep theirs."""
    prompts = {"long": prompt_of(200), "short": prompt_of(9, 1)}
    launches.arrivals = {3: [("short", prompts["short"])]}
    driver.submit("long", prompts["long"], max_tokens=6)
    driver.turn(2)
    assert launches == ["long", "long", "long", "short", "long"]
    assert len(driver.tokens("short")) == 1
    driver.run_until_idle()
    _assert_solo(driver, prompts)


def test_beside_running_rows_a_short_prompt_passes_in_the_gap(driver: LoopDriver, launches: Launches) -> None:
    """B2 holds: never two chunks of long prompts between two steps, whoever else is computed there."""
    driver.submit("running", prompt_of(5), max_tokens=200)
    driver.turn(2)
    driver.submit("long", prompt_of(200, 1), max_tokens=6)
    driver.submit("longer", prompt_of(400, 2), max_tokens=6)
    launches.clear()
    per_gap: list[list[str]] = []
    for turn in range(12):
        if turn % 3 == 0:
            driver.submit(f"short-{turn}", prompt_of(9, turn), max_tokens=6)
        before, told = len(launches), len(driver.tokens("running"))
        driver.turn()
        per_gap.append(launches[before:])
        assert len(driver.tokens("running")) > told
    assert [launch for gap in per_gap for launch in gap if launch.startswith("short")] == [
        "short-0",
        "short-3",
        "short-6",
        "short-9",
    ]
    assert all(sum(name.startswith("long") for name in gap) <= 1 for gap in per_gap)
    assert per_gap[0] == ["short-0"]


def test_two_short_prompts_pass_as_one_chunk(driver: LoopDriver, launches: Launches) -> None:
    """They pass together, each with its own words; the long one ends with its own."""
    prompts = {"long": prompt_of(200), "a": prompt_of(9, 1), "b": prompt_of(7, 2)}
    launches.arrivals = {2: [("a", prompts["a"]), ("b", prompts["b"])]}
    driver.submit("long", prompts["long"], max_tokens=6)
    driver.run_until_idle()
    assert launches[:4] == ["long", "long", "a+b", "long"]
    _assert_solo(driver, prompts)


def test_no_more_short_prompts_share_a_chunk_than_may_pass(driver: LoopDriver, launches: Launches) -> None:
    """Two would fit into a gap; what is left of the long one lets one of them pass, and then its next chunk comes."""
    prompts = {"long": prompt_of(49), "a": prompt_of(15, 1), "b": prompt_of(15, 2)}
    for id_, prompt in prompts.items():
        driver.submit(id_, prompt, max_tokens=6)
    driver.run_until_idle()
    assert launches[:2] == ["a", "long"]
    _assert_solo(driver, prompts)


def test_endless_short_prompts_hold_a_long_one_up_by_its_own_length(driver: LoopDriver, launches: Launches) -> None:
    """One comes with every launch: the long prompt is through after at most as many of theirs as of its own."""
    chunks = 20
    launches.arrivals = {number: [(f"short-{number}", prompt_of(9, number))] for number in range(1, 100)}
    driver.submit("long", prompt_of(chunks * CHUNK_TOKENS), max_tokens=6)
    driver.turn()
    while not driver.tokens("long"):
        driver.turn()
    last = len(launches) - 1 - launches[::-1].index("long")
    assert launches.count("long") == chunks
    others = last + 1 - chunks
    assert chunks / 2 < others <= chunks


def test_few_prompts_hold_memory_half_way(
    driver: LoopDriver, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever shorter prompts come while others are computed: only so many of them are begun at once."""
    lengths = [1_600, 700, 300, 130, 60]
    prompts = {str(index): prompt_of(length, index) for index, length in enumerate(lengths)}
    launches.arrivals = {index: [(str(index), prompts[str(index)])] for index in range(1, len(lengths))}
    driver.submit("0", prompts["0"], max_tokens=6)
    begun: list[int] = []
    original = prefill.wait_for_chunk

    def recording(caches: Any) -> None:
        begun.append(sum(row.caches is not None for row in driver.loop._prefilling.rows))
        original(caches)

    monkeypatch.setattr(prefill, "wait_for_chunk", recording)
    driver.run_until_idle()
    assert max(begun) == MOST_HALF_WAY
    _assert_solo(driver, prompts)


def test_choices_pass_together_and_say_how_long_they_waited(driver: LoopDriver, launches: Launches) -> None:
    """D5 behind a long prompt: one launch for three choices, each with timings that a clock could have."""
    driver.submit("long", prompt_of(200), max_tokens=6)
    for choice in range(3):
        driver.submit(f"a-{choice}", prompt_of(9, 1), group="a", choice=choice, max_tokens=6)
    driver.run_until_idle()
    assert launches.index("a-0") < 3
    assert not {"a-1", "a-2"} & set(launches)
    for choice in range(3):
        timings = driver.finish(f"a-{choice}").timings
        assert timings.queue_ms >= 0
        assert timings.prefill_ms > 0
        assert timings.decode_ms > 0


@pytest.mark.parametrize("leaver", ["long", "short"])
def test_who_is_cancelled_half_way_leaves_the_other(
    driver: LoopDriver, launches: Launches, monkeypatch: pytest.MonkeyPatch, leaver: str
) -> None:
    """A5 with two prompts half way, whichever goes."""
    prompts = {"long": prompt_of(400), "short": prompt_of(100, 1)}
    for id_, prompt in prompts.items():
        driver.submit(id_, prompt, max_tokens=6)
    original = driver.loop._prefilling.advance

    def cancelling(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)
        if len(launches) == 3:
            driver.cancel(leaver)

    monkeypatch.setattr(driver.loop._prefilling, "advance", cancelling)
    driver.run_until_idle()
    assert driver.finish(leaver).reason == "cancelled"
    del prompts[leaver]
    _assert_solo(driver, prompts)


def test_a_fault_of_who_passes_leaves_who_waits(
    driver: LoopDriver, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short prompt's chunk raises; the long one, half way, goes on."""
    launches.arrivals = {2: [("short", prompt_of(9, 1))]}
    original = prefill.wait_for_chunk

    def failing(caches: Any) -> None:
        if launches[-1] == "short":
            raise RuntimeError("no memory")
        original(caches)

    monkeypatch.setattr(prefill, "wait_for_chunk", failing)
    driver.submit("long", prompt_of(200), max_tokens=6)
    driver.run_until_idle()
    assert driver.finish("short").code == ErrorCode.PREFILL_FAILED
    _assert_solo(driver, {"long": prompt_of(200)})


def test_rows_that_are_not_begun_are_told_as_waiting(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """One long prompt is computed; the others hold rows, and the status says that they wait, and since when."""
    monkeypatch.setattr("engine.report.PUBLISH_EVERY_S", 0.0)
    seen: list[tuple[int, int, bool]] = []
    original = prefill.launch_chunk

    def recording(*arguments: Any) -> int:
        rows = driver.board.status().rows
        seen.append((rows.waiting, rows.prefilling, rows.oldest_waiting_ms > 0))
        return original(*arguments)

    monkeypatch.setattr(prefill, "launch_chunk", recording)
    for index in range(3):
        driver.submit(str(index), prompt_of(60, index), max_tokens=6)
    driver.turn()
    assert seen[1:4] == [(2, 1, True)] * 3
    driver.run_until_idle()
    driver.loop._publish()
    assert driver.board.status().rows.oldest_waiting_ms == 0
