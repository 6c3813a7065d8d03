"""Times decode steps with samplers: our decode step and turn, mlx-lm's BatchGenerator and the greedy bare loop.

Owns the mixes of settings; how each is driven is step_runners.py's. `python -m bench.sampling --help`.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.step import BASELINE, Schedule, measured, ratios
from bench.step_runners import (
    BareLoop,
    LibraryGenerator,
    OurDecode,
    OurTurn,
    Runner,
    StaggeredTurn,
    Wanted,
    fixed_prompts,
)

# isort: split
from engine.model.load import load_model
from engine.settings import Settings
from protocol.messages import LogprobsWanted
from protocol.sampling import Sampling


@dataclass(frozen=True, slots=True)
class MixFigures:
    """One mix on one model. step_ms: median per runner; over_bare, generator_over: medians of the rounds' ratios."""

    model: str
    mix: str
    rows: int
    step_ms: dict[str, float]
    over_bare: dict[str, float]
    generator_over: dict[str, float]


def _differing(share: float, **settings: Any) -> Wanted:
    """share: 0 to 1, another one for each row: mlx-lm batches equal samplers only."""
    return Wanted(Sampling(temperature=0.5 + share / 2, **settings))


# By name, what a row wants that has this share, 0 to 1, of the batch before it.
MIXES: Final[dict[str, Callable[[float], Wanted]]] = {
    "greedy": lambda share: Wanted(),
    "temperature": _differing,
    "top_k": lambda share: _differing(share, top_k=20 + int(share * 32)),
    "top_k_top_p": lambda share: _differing(share, top_k=20 + int(share * 32), top_p=0.8 + share * 0.15),
    "top_p": lambda share: _differing(share, top_p=0.8 + share * 0.15),
    "penalties": lambda share: Wanted(Sampling(repetition_penalty=1.1 + share / 10, presence_penalty=share)),
    "one_logprobs": lambda share: Wanted(logprobs=None if share else LogprobsWanted(top=5)),
}
# What BatchGenerator is not made to do here.
_NOT_THE_LIBRARYS: Final = ("penalties", "one_logprobs")


def run_mix(model: Any, name: str, rows: int, schedule: Schedule) -> MixFigures:
    """All runners on one mix, in interleaved blocks."""
    prompts = fixed_prompts(rows, model.args.vocab_size)
    wanted = [MIXES[name](index / rows) for index in range(rows)]
    runners: list[Runner] = [
        BareLoop(model, prompts),
        OurDecode(model, prompts, wanted),
        OurTurn(model, prompts, wanted=wanted),
        StaggeredTurn(model, prompts, wanted=wanted),
    ]
    if name not in _NOT_THE_LIBRARYS:
        runners.append(LibraryGenerator(model, prompts, wanted))
    step_ms = measured(runners, schedule, time.perf_counter)
    generator = step_ms.get(LibraryGenerator.name, [])
    return MixFigures(
        model="",
        mix=name,
        rows=rows,
        step_ms={runner: statistics.median(times) for runner, times in step_ms.items()},
        over_bare=ratios(step_ms),
        generator_over={
            runner: statistics.median(theirs / own for theirs, own in zip(generator, times, strict=True))
            for runner, times in step_ms.items()
            if generator and runner in (OurDecode.name, OurTurn.name, StaggeredTurn.name)
        },
    )


def _line(figures: MixFigures) -> str:
    words = [f"{figures.model:<24} B={figures.rows:<3} {figures.mix:<12} bare {figures.step_ms[BASELINE]:8.2f} ms"]
    words += [f"{name} x{ratio:.3f}" for name, ratio in figures.over_bare.items()]
    words += [f"generator/{name} {ratio:.2f}" for name, ratio in figures.generator_over.items()]
    return "   ".join(words)


def main() -> None:
    """Times each mix of samplers on each model, as ratios over the greedy bare loop, and BatchGenerator's over ours."""
    parser = argparse.ArgumentParser(prog="python -m bench.sampling", description=main.__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="model folders")
    parser.add_argument("--mixes", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="steps in a block")
    parser.add_argument("--out", type=Path, help="JSON")
    options = parser.parse_args()
    figures: list[MixFigures] = []
    for folder in options.models:
        model = load_model(Settings(model=str(folder)), folder).model
        for name in options.mixes:
            found = run_mix(model, name, options.rows, Schedule(options.rounds, options.steps))
            figures.append(dataclasses.replace(found, model=folder.name))
            print(_line(figures[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps([dataclasses.asdict(each) for each in figures], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
