"""The garbage collector: what stands is left out, and decoding gives it nothing to do."""

import gc
from collections.abc import Iterator

import pytest

from engine.garbage import leave_out_what_stands
from protocol.messages import Grammar, LogprobsWanted
from protocol.sampling import Sampling
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of


class _Ring:
    """Reachable from itself alone."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector() -> Iterator[None]:
    """The process's own, as it was, behind the test."""
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_what_stands_is_not_looked_through_again() -> None:
    """Garbage is gone before; of the rest a full collection sees nothing."""
    gc.collect()
    gc.disable()
    _Ring()
    standing = len(gc.get_objects())
    leave_out_what_stands()
    assert gc.collect() == 0
    assert gc.get_freeze_count() > standing / 2
    assert len(gc.get_objects()) < standing / 100


@pytest.mark.usefixtures("collector")
def test_rows_leave_no_garbage_behind(driver: LoopDriver) -> None:
    """All that steps, joins and ends make is freed as soon as nobody holds it: no cycle waits for the collector."""

    def play(name: str) -> None:
        hot = Sampling(temperature=1.0, top_p=0.9, frequency_penalty=0.5)
        driver.submit(f"{name} plain", prompt_of(9), max_tokens=30)
        driver.submit(f"{name} hot", prompt_of(30, 1), max_tokens=10, seed=1, sampling=hot)
        driver.submit(f"{name} scored", prompt_of(12, 2), max_tokens=5, logprobs=LogprobsWanted(top=2, of_prompt=True))
        driver.submit(f"{name} grammar", prompt_of(5, 3), max_tokens=8, grammar=Grammar(kind="regex", text="[a-z]{40}"))
        driver.turn(4)
        for choice in range(2):
            driver.submit(f"{name} {choice}", prompt_of(6, 4), group=name, choice=choice, max_tokens=6)
        driver.cancel(f"{name} hot")
        driver.run_until_idle()

    play("first")
    gc.collect()
    gc.disable()
    play("second")
    assert gc.collect() == 0
