"""Times decode steps by how rows keep their caches: lengths far apart in groups or as one, plain or quantized.

Owns the lengths and schemes; how a step is driven is step_runners.py's. `python -m bench.kv --help`.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.caches import random_layers
from bench.step import Schedule, measured, ratios
from bench.step_runners import DecodeSetup, OurDecode, fixed_prompts, vocabulary_size

# isort: split
from mlx import nn

from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.dense_reads import DenseReads
from engine.model.load import device_name, load_model
from engine.model.support import probe_batching
from engine.settings import Settings

# One long row beside seven short ones.
LENGTHS: Final = (4_000, *(100,) * 7)
# Weights so heavy that no padding is worth a second pass over them.
_HEAVY_BYTES: Final = 1 << 50
_ONE_GROUP: Final = "one group"
_PLAIN: Final = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """Medians. step_ms and kv_bytes: per runner; over: of the rounds' own ratios over the first runner."""

    title: str
    step_ms: dict[str, float]
    kv_bytes: dict[str, int]
    over: dict[str, float]

    @property
    def text(self) -> str:
        """For a person."""
        words = [f"{name} {ms:.2f} ms, {self.kv_bytes[name] / 1e6:.1f} MB" for name, ms in self.step_ms.items()]
        words += [f"{name} x{ratio:.2f}" for name, ratio in self.over.items()]
        return f"{self.title:<24} {'   '.join(words)}"


def apart(model: nn.Module, lengths: Sequence[int], schedule: Schedule) -> Line:
    """Rows of these lengths in the groups that the cost rule makes, over all of them padded to the longest."""
    (ids,) = fixed_prompts(1, vocabulary_size(model), sum(lengths))
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    prompts = [ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    setups = (DecodeSetup(_ONE_GROUP, weights_bytes=_HEAVY_BYTES), DecodeSetup("groups"))
    runners = [OurDecode(model, prompts, setup=setup) for setup in setups]
    counts = " and ".join(str(runner.group_count) for runner in runners)
    return _timed(f"{len(lengths)} rows, {counts} groups", runners, schedule)


def quantized(model: nn.Module, rows: int, tokens: int, group_size: int, schedule: Schedule) -> Line:
    """Rows of so many tokens with 8 and 4 bits, each read in every way that the device has, over float caches."""
    prompts = fixed_prompts(rows, vocabulary_size(model), tokens)
    runners = [OurDecode(model, prompts, setup=DecodeSetup(_PLAIN))]
    for bits in (8, 4):
        scheme = KvScheme("--kv-bits", every=LayerScheme(bits, group_size))
        for words, attending in _ways(model):
            plan = probe_batching(attending, rows + 1, scheme).cache_plan
            runners.append(OurDecode(attending, prompts, setup=DecodeSetup(f"{bits} bits{words}", plan)))
    return _timed(f"B={rows}, {tokens} tokens", runners, schedule)


def _ways(model: nn.Module) -> list[tuple[str, Any]]:
    """By a product with the packed columns, where the device has one, and by columns read as floats."""
    dense = (" dense", DenseReads(model))
    return [dense] if device_name() == "cuda" else [("", model), dense]


def _timed(title: str, runners: list[OurDecode], schedule: Schedule) -> Line:
    found = measured(runners, schedule, time.perf_counter)
    medians = {name: statistics.median(times) for name, times in found.items()}
    sizes = {runner.name: runner.kv_bytes for runner in runners}
    return Line(title, medians, sizes, ratios(found, runners[0].name))


def main() -> None:
    """Times steps of rows far apart in length, then of quantized caches."""
    parser = argparse.ArgumentParser(prog="python -m bench.kv", description=main.__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="a model folder; without it 4 random layers")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, nargs="+", default=[100, 1_000], help="of context, quantized")
    parser.add_argument("--group-size", type=int, default=32, help="of --kv-group-size")
    parser.add_argument("--no-apart", action="store_true", help="skip the rows far apart: a long prefill")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=16, help="steps in a block")
    options = parser.parse_args()
    schedule = Schedule(options.rounds, options.steps)
    model = random_layers("llama")
    if options.model is not None:
        model = load_model(Settings(model=str(options.model)), options.model).model
    if not options.no_apart:
        print(apart(model, LENGTHS, schedule).text, flush=True)
    for tokens in options.tokens:
        for rows in options.rows:
            print(quantized(model, rows, tokens, options.group_size, schedule).text, flush=True)


if __name__ == "__main__":
    main()
