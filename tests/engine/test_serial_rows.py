"""B13: a row that can share no step drains the batch, decodes alone, and the batch goes on behind it."""

import pytest

from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.support import probe_batching
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import random_model
from tests.parity.oracle import solo_tokens

START_TOKENS = 60


def _driver(max_rows: int = 8) -> LoopDriver:
    scheme = KvScheme("--kv-bits", every=LayerScheme(8, 32), start_tokens=START_TOKENS)
    support = probe_batching(random_model("llama"), max_rows, scheme)
    facts = facts_of(random_model("llama"), max_rows=max_rows, batching=support.batching)
    return LoopDriver(random_model("llama"), facts, cache_plan=support.cache_plan)


def test_a_serial_row_under_sustained_load_completes() -> None:
    """Short rows arrive all the time; the long one waits for those before it, runs alone, and admission resumes."""
    driver = _driver()
    decoding_together: list[set[str]] = []
    for index in range(4):
        driver.submit(f"before-{index}", prompt_of(6, index), max_tokens=10)
    driver.turn(2)
    driver.submit("alone", prompt_of(30, 9), max_tokens=40)
    for index in range(25):
        driver.submit(f"after-{index}", prompt_of(6, index), max_tokens=6)
        driver.turn()
        decoding_together.append({row.key.id for row in driver.loop._batch})
    while driver.live_ids():
        driver.turn()
        decoding_together.append({row.key.id for row in driver.loop._batch})
    assert {"alone"} in decoding_together
    assert all(together == {"alone"} for together in decoding_together if "alone" in together)
    first_alone = decoding_together.index({"alone"})
    assert not any(name.startswith("after") for together in decoding_together[:first_alone] for name in together)
    assert any(len(together) > 1 for together in decoding_together[first_alone:])
    assert len(driver.tokens("alone")) == 40
    for index in range(25):
        assert driver.tokens(f"after-{index}") == solo_tokens(random_model("llama"), prompt_of(6, index), 6)


@pytest.mark.parametrize(("prompt_tokens", "max_tokens", "alone"), [(30, 29, False), (30, 30, True), (60, 1, True)])
def test_the_start_decides(prompt_tokens: int, max_tokens: int, alone: bool) -> None:
    """A row that cannot reach the start never changes its caches, and batches."""
    driver = _driver()
    driver.submit("short", prompt_of(5), max_tokens=20)
    driver.submit("row", prompt_of(prompt_tokens, 1), max_tokens=max_tokens)
    driver.turn()
    together = {row.key.id for row in driver.loop._batch}
    driver.run_until_idle()
    assert together == ({"short"} if alone else {"short", "row"})
    assert len(driver.tokens("row")) == max_tokens


def test_a_serial_row_that_is_cancelled_lets_the_next_ones_in() -> None:
    """While it waits for the drain, and while it runs."""
    driver = _driver()
    driver.submit("before", prompt_of(5), max_tokens=20)
    driver.submit("waiting", prompt_of(30), max_tokens=100)
    driver.submit("running", prompt_of(30, 1), max_tokens=100)
    driver.submit("after", prompt_of(5, 2), max_tokens=5)
    driver.turn(3)
    driver.cancel("waiting")
    while "running" not in {row.key.id for row in driver.loop._batch}:
        driver.turn()
    driver.cancel("running")
    driver.run_until_idle()
    assert [driver.finish(id_).reason for id_ in ("waiting", "running", "after")] == [
        "cancelled",
        "cancelled",
        "length",
    ]


def test_the_choices_of_a_serial_request_run_one_after_another() -> None:
    """n=3 of a row that decodes alone: three turns on the device."""
    driver = _driver()
    for choice in range(3):
        driver.submit(f"a-{choice}", prompt_of(30), group="a", choice=choice, max_tokens=40)
    driver.turn(2)
    assert len(driver.loop._batch) == 1
    driver.run_until_idle()
    assert len({tuple(driver.tokens(f"a-{choice}")) for choice in range(3)}) == 1
    assert len(driver.tokens("a-2")) == 40
