"""Times one row's decode step traced once by mx.compile against the plain one: whether compiling is worth its code.

Compiled, a step needs buffers of one shape and positions as arrays; such a cache exists only here.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, Final

from bench.step import Schedule, measured, ratios
from bench.step_runners import BareLoop, OurDecode, Runner, fixed_prompts, vocabulary_size

# isort: split
import mlx.core as mx
from mlx import nn

from engine.model.load import load_model
from engine.settings import Settings

# Columns of a compiled step's buffers: it attends over all of them.
CAPACITY: Final = 512


class CompiledLoop:
    """As BareLoop for one row, its step traced once. Raises RuntimeError beyond CAPACITY tokens."""

    name = "compiled"

    def __init__(self, model: nn.Module, prompts: list[list[int]]) -> None:
        bare = BareLoop(model, prompts)
        self._model = model
        self._tokens = len(prompts[0])
        self.register = bare.register[:, None]
        self._position = mx.array(self._tokens)
        self._buffers = [_widened(part) for cache in bare.caches for part in (cache.keys, cache.values)]
        mx.eval(self._buffers)
        self._step = mx.compile(self._traced)

    def step(self) -> None:
        """One call of the traced step; the token of the step before becomes a Python int."""
        self._tokens += 1
        if self._tokens > CAPACITY:
            raise RuntimeError(f"the compiled step has room for {CAPACITY} tokens")
        launched, self._position, *self._buffers = self._step(self.register, self._position, *self._buffers)
        mx.async_eval(launched)
        self.register.tolist()
        self.register = launched

    def settle(self) -> None:
        """Waits for the register."""
        mx.eval(self.register)

    def _traced(self, token: mx.array, position: mx.array, *buffers: mx.array) -> tuple[mx.array, ...]:
        pairs = zip(buffers[::2], buffers[1::2], strict=True)
        caches = [_FixedCache(keys, values, position) for keys, values in pairs]
        logits = self._model(token, cache=caches)
        written = [part for cache in caches for part in (cache.keys, cache.values)]
        return mx.argmax(logits[:, -1, :], axis=-1, keepdims=True), position + 1, *written


class _FixedCache:
    """One layer's buffers [1, H, CAPACITY, D] within a trace."""

    def __init__(self, keys: mx.array, values: mx.array, position: mx.array) -> None:
        self.keys = keys
        self.values = values
        self.offset = position

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Writes [1, H, 1, D] at the position; returns all columns."""
        self.keys = mx.slice_update(self.keys, keys, self.offset, axes=[2])
        self.values = mx.slice_update(self.values, values, self.offset, axes=[2])
        return self.keys, self.values

    def make_mask(self, *_: Any, **__: Any) -> mx.array:
        """Hides what is not written yet."""
        return mx.arange(CAPACITY) <= self.offset


def _widened(part: mx.array) -> mx.array:
    rows, heads, columns, dimension = part.shape
    return mx.concatenate([part, mx.zeros((rows, heads, CAPACITY - columns, dimension), part.dtype)], axis=2)


def compared(model: nn.Module, schedule: Schedule) -> dict[str, list[float]]:
    """Milliseconds a step of one row: the bare loop, our decode, the compiled step."""
    prompts = fixed_prompts(1, vocabulary_size(model))
    makers: tuple[Any, ...] = (BareLoop, OurDecode, CompiledLoop)
    runners: list[Runner] = [make(model, prompts) for make in makers]
    return measured(runners, schedule, time.perf_counter)


def main() -> None:
    """Times one row's step plain and compiled, as ratios over the bare loop."""
    parser = argparse.ArgumentParser(prog="python -m bench.compiled_step", description=main.__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="model folders with plain caches")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=24, help="steps in a block")
    options = parser.parse_args()
    for folder in options.models:
        found = compared(load_model(Settings(model=str(folder)), folder).model, Schedule(options.rounds, options.steps))
        words = [f"{name} x{ratio:.3f}" for name, ratio in ratios(found).items()]
        print(
            f"{folder.name:<24} bare {statistics.median(found[BareLoop.name]):8.2f} ms   {'   '.join(words)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
