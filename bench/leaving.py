"""What it costs running rows that others leave their prefixes: a full loop in process, with and without a prefix cache.

Owns the stream of rows that come and go; the loop is the engine's. `python -m bench.leaving --help`.
"""

import argparse
import gc
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.step_runners import fixed_prompts, loop_parts, vocabulary_size

# isort: split
import mlx.core as mx

from engine.loop import EngineLoop
from engine.mailbox import Client, Heard, SubmitHeard
from engine.model.load import load_model
from engine.settings import Settings
from protocol.codec import encode, pack_ids
from protocol.messages import AnyFromEngine, Epoch, Step, Submit, SubmitId, TokenPrompt
from protocol.status import PrefixStatus

_EPOCH: Final = Epoch("bench")
_CHUNK_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class Work:
    """rows: at once; prompts: in all, so many tokens each; most_tokens: of a reply, and at least half of that."""

    rows: int
    prompts: int
    prompt_tokens: int
    most_tokens: int


class Visitors:
    """A mailbox whose rows come one after another: one that ends makes room for the next, all different."""

    def __init__(self, prompts: list[list[int]], work: Work) -> None:
        self._work = work
        self._prompts = prompts
        self._sent = 0
        self._live = 0
        self.tokens = 0
        self.clients: dict[bytes, Client] = {}
        self.malformed_frames = 0
        self.stale_messages = 0

    @property
    def is_done(self) -> bool:
        """Whether all have come and gone."""
        return self._sent == len(self._prompts) and not self._live

    def hear(self, now: float, wait_ms: int) -> list[Heard]:
        """As many as have room."""
        heard: list[Heard] = []
        while self._live < self._work.rows and self._sent < len(self._prompts):
            heard.append(SubmitHeard(b"bench", self._submit(self._sent)))
            self._sent += 1
            self._live += 1
        return heard

    def tell(self, client: bytes, message: AnyFromEngine) -> None:
        """Costs what encoding costs."""
        encode(message)

    def tell_step(self, client: bytes, step: Step) -> None:
        """The same."""
        encode(step)
        for delta in step.rows:
            self.tokens += len(delta.tokens) // 4
            self._live -= delta.finish is not None

    def lose(self, client: bytes) -> None:
        """Nobody can be lost who is there to the end: what led here ends the bench."""
        raise AssertionError(f"{client!r} could not be told")

    def _submit(self, index: int) -> Submit:
        least = self._work.most_tokens // 2
        return Submit(
            epoch=_EPOCH,
            id=SubmitId(f"row-{index}"),
            group=f"row-{index}",
            model="bench",
            prompt=TokenPrompt(ids=pack_ids(self._prompts[index])),
            # Of different lengths, so that rows leave one by one.
            max_tokens=least + index * 7 % (self._work.most_tokens - least + 1),
            ignore_eos=True,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One pass. slowest_ms: of a hundred turns the slowest one."""

    wall_s: float
    slowest_ms: float
    kept: PrefixStatus


def run(model: Any, prompts: list[list[int]], work: Work, ceiling_bytes: int) -> Run:
    """All visitors served by a loop of its own. ceiling_bytes: 0 for no prefix cache."""
    visitors = Visitors(prompts, work)
    parts = loop_parts(model, visitors, _CHUNK_TOKENS, ceiling_bytes=ceiling_bytes)
    loop = EngineLoop(parts)
    turns_ms: list[float] = []
    began_s = time.perf_counter()
    while not visitors.is_done:
        turn_s = time.perf_counter()
        loop.turn()
        turns_ms.append((time.perf_counter() - turn_s) * 1e3)
    mx.synchronize()
    wall_s = time.perf_counter() - began_s
    return Run(wall_s, statistics.quantiles(turns_ms, n=100)[-1], parts.prefixes.status())


def main() -> None:
    """Serves the same rows with and without a prefix cache, in turns; prints ratios and the resident memory."""
    parser = argparse.ArgumentParser(prog="python -m bench.leaving", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--most-tokens", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ceiling", type=int, default=1 << 30, help="bytes of live rows and kept prefixes")
    options = parser.parse_args()
    work = Work(options.rows, options.prompts, options.prompt_tokens, options.most_tokens)
    model: Any = load_model(Settings(model=str(options.model)), options.model).model
    prompts = fixed_prompts(work.prompts, vocabulary_size(model), work.prompt_tokens)
    run(model, prompts[: work.rows], work, 0)
    walls: list[float] = []
    slowest: list[float] = []
    for pair in range(options.pairs):
        order = (options.ceiling, 0) if pair % 2 else (0, options.ceiling)
        runs = {ceiling: run(model, prompts, work, ceiling) for ceiling in order}
        kept, plain = runs[options.ceiling], runs[0]
        walls.append(kept.wall_s / plain.wall_s)
        slowest.append(kept.slowest_ms / plain.slowest_ms)
        gc.collect()
        resident_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        print(
            f"pair {pair}: wall x{walls[-1]:.3f} ({plain.wall_s:.2f} s without), slowest turn x{slowest[-1]:.3f}, "
            f"{kept.kept.entries} kept, {kept.kept.size_bytes / 1e6:.1f} MB, resident at most {resident_mb:.0f} MB",
            flush=True,
        )
    print(f"median of {options.pairs}: wall x{statistics.median(walls):.3f}, turn x{statistics.median(slowest):.3f}")


if __name__ == "__main__":
    main()
