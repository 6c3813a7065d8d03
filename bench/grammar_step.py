"""What grammar rows add to a step: our loop's turn with and without them, paired and interleaved in one process.

`python -m bench.grammar_step FOLDER`; the folder has a tokenizer.json beside its weights.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Final

from bench.step import Schedule, measured
from bench.step_runners import Constrained, StaggeredTurn, fixed_prompts

# isort: split
from engine.model.load import load_model
from engine.sampling.grammar import GrammarTokenizer
from engine.settings import Settings
from protocol.messages import Grammar

_ENDLESS_ITEMS: Final = 1_000_000
# As a model's reply has it: names that are forced, short texts, numbers, choices; and no end within the bench.
RECORDS: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": _ENDLESS_ITEMS,
    "items": {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 40},
            "count": {"type": "integer", "minimum": 0, "maximum": 9_999},
            "state": {"enum": ["open", "done"]},
        },
        "required": ["title", "count", "state"],
        "additionalProperties": False,
    },
}
_RECORDS_GRAMMAR: Final = Grammar(kind="json_schema", text=json.dumps(RECORDS))


class FreeTurn(StaggeredTurn):
    """Every row is free."""

    name = "free"


class ConstrainedTurn(StaggeredTurn):
    """Some rows follow a grammar."""

    name = "constrained"


def added(free_ms: list[float], constrained_ms: list[float]) -> float:
    """Median over rounds of what the constrained step takes over the free one of the same round."""
    return statistics.median(own / free for own, free in zip(constrained_ms, free_ms, strict=True))


def main() -> None:
    """Times greedy rows with and without some that follow a JSON schema."""
    parser = argparse.ArgumentParser(prog="python -m bench.grammar_step", description=main.__doc__)
    parser.add_argument("model", type=Path, help="model folder with a tokenizer.json")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--constrained", type=int, nargs="+", default=[8], help="how many of them follow the schema")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=24, help="steps in a block")
    options = parser.parse_args()
    model: Any = load_model(Settings(model=str(options.model)), options.model).model
    tokenizer = GrammarTokenizer.read((options.model / "tokenizer.json").read_bytes(), model.args.vocab_size, ())
    schedule = Schedule(options.rounds, options.steps)
    for count in options.constrained:
        if not 0 < count <= options.rows or options.rows % count:
            parser.error(f"--constrained {count} does not divide --rows {options.rows}")
        constrained = Constrained(tokenizer, _RECORDS_GRAMMAR, every=options.rows // count)
        print(f"{options.model.name}: {run(model, options.rows, constrained, schedule)}", flush=True)


def run(model: Any, rows: int, constrained: Constrained, schedule: Schedule) -> str:
    """Times greedy rows free and with some of them in the grammar. Returns a line of figures."""
    prompts = fixed_prompts(rows, model.args.vocab_size)
    runners = [FreeTurn(model, prompts), ConstrainedTurn(model, prompts, constrained)]
    found = measured(runners, schedule, time.perf_counter)
    medians = {name: statistics.median(times) for name, times in found.items()}
    return (
        f"{rows} greedy rows {medians['free']:.2f} ms a step, {rows // constrained.every} of them in a grammar "
        f"{medians['constrained']:.2f} ms, x{added(found['free'], found['constrained']):.3f}"
    )


if __name__ == "__main__":
    main()
