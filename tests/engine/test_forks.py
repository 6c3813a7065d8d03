"""The choices of one request: one prefill, several rows."""

from typing import Any

import pytest

from engine import prefill
from engine.batch import Group
from protocol.errors import ErrorCode
from protocol.sampling import Sampling
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

HOT = Sampling(temperature=1.0)


def _submit_choices(driver: LoopDriver, name: str, prompt: list[int], count: int, **changes: Any) -> list[str]:
    ids = [f"{name}-{choice}" for choice in range(count)]
    for choice, id_ in enumerate(ids):
        driver.submit(id_, prompt, group=name, choice=choice, **{"seed": choice, **changes})
    return ids


def _alone(prompt: list[int], **changes: Any) -> list[int]:
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("alone", prompt, **changes)
    driver.run_until_idle()
    return driver.tokens("alone")


@pytest.mark.parametrize("length", [1, 2, 9, 40])
def test_four_choices_of_one_prompt_prefill_once(driver: LoopDriver, events: list[str], length: int) -> None:
    """D5: n=4 at temperature 1: the prompt is forwarded once, and each choice draws what it would alone."""
    ids = _submit_choices(driver, "a", prompt_of(length), 4, sampling=HOT)
    driver.run_until_idle()
    assert events.count("launch_chunk") + events.count("launch_together") == 1
    texts = [driver.tokens(id_) for id_ in ids]
    assert len({tuple(text) for text in texts}) == 4
    assert texts == [_alone(prompt_of(length), seed=choice, sampling=HOT) for choice in range(4)]


def test_a_long_prompt_of_several_choices_is_chunked_once(events: list[str]) -> None:
    """Four chunks for three choices, not twelve; beside a running row, which keeps its words."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    driver.submit("running", prompt_of(5, 7), max_tokens=40)
    driver.turn(2)
    events.clear()
    ids = _submit_choices(driver, "a", prompt_of(65), 3)
    driver.run_until_idle()
    assert events.count("launch_chunk") == 4
    assert [driver.tokens(id_) for id_ in ids] == [solo_tokens(tiny_model("llama"), prompt_of(65), 20)] * 3
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(5, 7), 40)


def test_families_share_a_chunk(driver: LoopDriver, events: list[str]) -> None:
    """Two requests of two choices each go as one padded chunk of two prompts."""
    ids = _submit_choices(driver, "a", prompt_of(9), 2) + _submit_choices(driver, "b", prompt_of(12, 1), 2)
    driver.run_until_idle()
    assert events.count("launch_together") == 1
    assert events.count("launch_chunk") == 0
    expected = [solo_tokens(tiny_model("llama"), prompt_of(9), 20)] * 2
    expected += [solo_tokens(tiny_model("llama"), prompt_of(12, 1), 20)] * 2
    assert [driver.tokens(id_) for id_ in ids] == expected


def test_equal_prompts_of_different_requests_or_clients_are_not_siblings(driver: LoopDriver) -> None:
    """Only the choices of one client's request share a prefill by right."""
    driver.submit("0", prompt_of(9), group="a")
    driver.submit("1", prompt_of(9), group="b")
    driver.submit("2", prompt_of(9), group="a", client=b"other")
    driver.submit("3", prompt_of(9), group="a")
    driver.loop._hear(0)
    driver.loop._admit()
    assert [row.key.id for row in driver.loop._prefilling.rows.leaders()] == ["0", "1", "2"]


def test_choices_end_alone(driver: LoopDriver) -> None:
    """One choice is cancelled, one reaches its limit, and the others do not notice."""
    ids = _submit_choices(driver, "a", prompt_of(9), 3, max_tokens=15)
    driver.turn(3)
    driver.cancel(ids[0], reason="stop")
    driver.run_until_idle()
    assert [driver.finish(id_).reason for id_ in ids] == ["stop", "length", "length"]
    assert driver.tokens(ids[1]) == driver.tokens(ids[2]) == solo_tokens(tiny_model("llama"), prompt_of(9), 15)


def test_a_leader_that_is_cancelled_half_way_leaves_its_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its siblings prefill again, from the start, and finish."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    original = prefill.wait_for_chunk

    def cancelling(caches: Any) -> None:
        driver.cancel("a-0")
        original(caches)

    monkeypatch.setattr(prefill, "wait_for_chunk", cancelling)
    ids = _submit_choices(driver, "a", prompt_of(40), 3, max_tokens=5)
    driver.run_until_idle()
    assert [driver.finish(id_).reason for id_ in ids] == ["cancelled", "length", "length"]
    assert driver.tokens(ids[2]) == solo_tokens(tiny_model("llama"), prompt_of(40), 5)


def test_a_fault_in_the_fork_ends_the_whole_family(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sibling is forgotten: each gets its one finish."""

    def failing(group: Group, families: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(Group, "fork", failing)
    ids = _submit_choices(driver, "a", prompt_of(9), 3)
    driver.turn()
    assert [driver.finish(id_).code for id_ in ids] == [ErrorCode.PREFILL_FAILED] * 3
    assert driver.live_ids() == []


def test_choices_start_together_or_wait(events: list[str]) -> None:
    """Under a cap of three, a family of two behind two live rows waits for both, first in first out."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=3))
    for index in range(2):
        driver.submit(str(index), prompt_of(5, index + 1), max_tokens=6 + 6 * index)
    ids = _submit_choices(driver, "a", prompt_of(9), 2, max_tokens=4)
    driver.submit("last", prompt_of(5, 9), max_tokens=2)
    driver.turn()
    assert len(driver.loop._batch) == 2
    events.clear()
    driver.run_until_idle()
    assert events.count("launch_chunk") + events.count("launch_together") <= 2
    assert [driver.finish(id_).reason for id_ in [*ids, "last"]] == ["length"] * 3


@pytest.mark.parametrize("max_rows", [1, 2])
def test_more_choices_than_the_cap_run_one_after_another(max_rows: int) -> None:
    """An engine of few rows, or of one, serves a large family in turns."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=max_rows))
    ids = _submit_choices(driver, "a", prompt_of(9), 3, max_tokens=4)
    driver.run_until_idle()
    assert [driver.tokens(id_) for id_ in ids] == [solo_tokens(tiny_model("llama"), prompt_of(9), 4)] * 3
