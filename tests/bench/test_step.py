"""Step times are paired: every runner meets every round, and a ratio is of one round."""

from pathlib import Path

import pytest

pytest.importorskip("mlx.core")

from bench.random_model import TINY_LLAMA, build_random_model
from bench.step import Schedule, measured, ratios, run_model
from bench.step_runners import RUNNERS, OurTurn, StaggeredTurn, fixed_prompts
from tests.fakes.models import tiny_model


class _Fake:
    """Takes a fixed time a step and a second to settle."""

    def __init__(self, name: str, step_s: float, clock: list[float], calls: list[str]) -> None:
        self.name = name
        self._step_s = step_s
        self._clock = clock
        self._calls = calls

    def step(self) -> None:
        self._calls.append(self.name)
        self._clock[0] += self._step_s

    def settle(self) -> None:
        self._clock[0] += 1.0


def test_blocks_alternate_rotate_and_end_when_the_device_is_idle() -> None:
    """A warm-up block each, then one block each a round, whose first runner changes; settling is counted."""
    clock, calls = [0.0], list[str]()
    runners = [_Fake("bare", 1.0, clock, calls), _Fake("b", 2.0, clock, calls), _Fake("c", 4.0, clock, calls)]
    found = measured(runners, Schedule(rounds=2, steps_per_round=2), lambda: clock[0])
    assert found == {"bare": [1_500.0] * 2, "b": [2_500.0] * 2, "c": [4_500.0] * 2}
    assert calls[12:] == ["bare", "bare", "b", "b", "c", "c", "b", "b", "c", "c", "bare", "bare"]


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    """A round in which the machine was slow for everyone does not count for more."""
    assert ratios({"bare": [1.0, 10.0, 2.0], "b": [2.0, 11.0, 3.0]}) == {"b": 1.5}


@pytest.mark.parametrize("rows", [1, 3])
def test_every_runner_decodes_the_same_model(tmp_path: Path, rows: int) -> None:
    """Real runners on a tiny model: figures for each, positive, with a ratio over the bare loop."""
    folder = build_random_model(tmp_path / "tiny", TINY_LLAMA)
    (figures,) = run_model(folder, [rows], Schedule(rounds=1, steps_per_round=2))
    assert list(figures.step_ms) == [make.name for make in RUNNERS] == ["bare", "decode", "turn", "generator"]
    assert list(figures.over_bare) == ["decode", "turn", "generator"]
    assert min(figures.step_ms.values()) > 0


def test_prompts_are_fixed() -> None:
    """The same in every run, each row its own."""
    prompts = fixed_prompts(3, 512)
    assert prompts == fixed_prompts(3, 512)
    assert len({tuple(prompt) for prompt in prompts}) == 3


def test_a_turn_is_unpadded_and_a_staggered_one_is_not() -> None:
    """What the bare loop is compared with has no mask; what rows need that join one after another is another runner."""
    model = tiny_model("llama")
    prompts = fixed_prompts(8, model.args.vocab_size)
    for make, is_padded in ((OurTurn, False), (StaggeredTurn, True)):
        (group,) = make(model, prompts)._loop._batch.groups
        assert (len(group.rows), group.layout.is_padded) == (8, is_padded)
