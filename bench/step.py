"""Times one decode step in process: ours, mlx-lm's BatchGenerator and the bare loop, paired and interleaved.

Owns the schedule and the ratios; how each is driven is step_runners.py's. `python -m bench.step --help`.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.step_runners import RUNNERS, Runner, fixed_prompts

# isort: split
from engine.model.load import load_model
from engine.settings import Settings

BASELINE: Final = "bare"
_WARM_UP_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One batch size of one model. step_ms: median per runner; over_bare: median of the rounds' own ratios."""

    model: str
    rows: int
    rounds: int
    steps_per_round: int
    step_ms: dict[str, float]
    over_bare: dict[str, float]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to look: rounds of one block of steps per runner."""

    rounds: int
    steps_per_round: int


def measured(runners: Sequence[Runner], schedule: Schedule, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Milliseconds per step of each runner in each round. clock: seconds.

    Blocks alternate and their order rotates, so that what disturbs the machine meets every runner; a block
    ends when nothing of it is left on the device.
    """
    for runner in runners:
        _timed(runner, _WARM_UP_STEPS, clock)
    found: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for turn in range(schedule.rounds):
        first = turn % len(runners)
        for runner in [*runners[first:], *runners[:first]]:
            found[runner.name].append(_timed(runner, schedule.steps_per_round, clock))
    return found


def ratios(step_ms: dict[str, list[float]], baseline: str = BASELINE) -> dict[str, float]:
    """Median over rounds of each runner's time over the baseline's of the same round."""
    return {
        name: statistics.median(own / bare for own, bare in zip(times, step_ms[baseline], strict=True))
        for name, times in step_ms.items()
        if name != baseline
    }


def run_model(folder: Path, row_counts: Sequence[int], schedule: Schedule) -> list[StepFigures]:
    """Every batch size on one model folder, loaded as our engine loads it."""
    model: Any = load_model(Settings(model=str(folder)), folder).model
    figures: list[StepFigures] = []
    for rows in row_counts:
        prompts = fixed_prompts(rows, model.args.vocab_size)
        step_ms = measured([make(model, prompts) for make in RUNNERS], schedule, time.perf_counter)
        medians = {name: statistics.median(times) for name, times in step_ms.items()}
        shape = (folder.name, rows, schedule.rounds, schedule.steps_per_round)
        figures.append(StepFigures(*shape, medians, ratios(step_ms)))
        print(_line(figures[-1]), flush=True)
    return figures


def _timed(runner: Runner, steps: int, clock: Callable[[], float]) -> float:
    began_s = clock()
    for _ in range(steps):
        runner.step()
    runner.settle()
    return (clock() - began_s) / steps * 1e3


def _line(figures: StepFigures) -> str:
    words = [f"{figures.model:<24} B={figures.rows:<3} bare {figures.step_ms[BASELINE]:8.2f} ms"]
    words += [f"{name} {figures.step_ms[name]:8.2f} ms x{ratio:.3f}" for name, ratio in figures.over_bare.items()]
    return "   ".join(words)


def main() -> None:
    """Times the decode step of each model at each batch size, as ratios over the bare loop."""
    parser = argparse.ArgumentParser(prog="python -m bench.step", description=main.__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="model folders")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=16, help="steps in a block")
    parser.add_argument("--out", type=Path, help="JSON")
    options = parser.parse_args()
    schedule = Schedule(options.rounds, options.steps)
    figures = [line for folder in options.models for line in run_model(folder, options.rows, schedule)]
    if options.out:
        options.out.write_text(json.dumps([dataclasses.asdict(line) for line in figures], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
