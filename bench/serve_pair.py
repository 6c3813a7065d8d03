"""Our server against mlx_lm.server on one model folder: the same bodies, in turns, as ratios.

Owns the pairing; the load is load.py's. `python -m bench.serve_pair --help`.
"""

import argparse
import asyncio
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from bench.load import Round, Workload, new_session, run_round, table
from bench.servers import RunningServer, free_port, our_launch, running, their_launch

_IDLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One round of each server, one after the other."""

    ours: Round
    theirs: Round

    @property
    def throughput(self) -> float:
        """Our tokens per second over theirs."""
        return self.ours.tokens_per_s / self.theirs.tokens_per_s

    @property
    def ttft(self) -> float:
        """Our median time to first token over theirs."""
        return self.ours.ttft_p50_ms / self.theirs.ttft_p50_ms


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Medians of the pairs of one concurrency. gap: largest gap between frames of one stream, ours over theirs."""

    concurrency: int
    pairs: int
    throughput_ratio: float
    ttft_p50_ratio: float
    largest_gap_ratio: float


def figures_of(pairs: Sequence[Pair]) -> list[PairFigures]:
    """One line per concurrency, in the order in which they came."""
    figures: list[PairFigures] = []
    for concurrency in dict.fromkeys(pair.ours.concurrency for pair in pairs):
        same = [pair for pair in pairs if pair.ours.concurrency == concurrency]
        figures.append(
            PairFigures(
                concurrency,
                len(same),
                statistics.median(pair.throughput for pair in same),
                statistics.median(pair.ttft for pair in same),
                statistics.median(pair.ours.largest_gap_ms / pair.theirs.largest_gap_ms for pair in same),
            )
        )
    return figures


async def run_pairs(ours: Workload, theirs: Workload, concurrencies: Sequence[int], pairs: int) -> list[Pair]:
    """At each concurrency a warm-up of each, then pairs whose order alternates; one server is loaded at a time."""
    found: list[Pair] = []
    async with new_session() as session:
        for concurrency in concurrencies:
            for workload in (ours, theirs):
                await run_round(session, workload, concurrency)
            for turn in range(pairs):
                in_turn = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
                rounds = {workload.url: await run_round(session, workload, concurrency) for workload in in_turn}
                found.append(Pair(rounds[ours.url], rounds[theirs.url]))
                print(f"C={concurrency:<3} {found[-1].throughput:6.3f} tokens/s {found[-1].ttft:6.3f} TTFT", flush=True)
    return found


async def idle_shares(servers: Sequence[RunningServer], workloads: Sequence[Workload]) -> dict[str, float]:
    """Share of one processor that each warm server uses with nothing to do; more than a little spoils the pair."""
    async with new_session() as session:
        for workload in workloads:
            await run_round(session, workload, 1)
    before = [server.cpu_s() for server in servers]
    began_s = time.perf_counter()
    await asyncio.sleep(_IDLE_S)
    spent_s = time.perf_counter() - began_s
    return {
        server.launch.name: (server.cpu_s() - used_s) / spent_s for server, used_s in zip(servers, before, strict=True)
    }


def main() -> None:
    """Runs both servers on one model, in turns, and prints ours over theirs."""
    parser = argparse.ArgumentParser(prog="python -m bench.serve_pair", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder with float32 weights (see bench.float32_copy)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--endpoint", choices=["chat", "completions"], default="chat")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-rows", type=int, default=32)
    parser.add_argument("--out", type=Path, help="JSON of every round and the ratios")
    options = parser.parse_args()
    with ExitStack() as opened:
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="cv-")))
        model = options.model.absolute()
        launches = (
            our_launch(model, free_port(), scratch / "run", options.max_rows),
            their_launch(model, free_port()),
        )
        servers = [
            opened.enter_context(running(launch, scratch / f"{number}.log")) for number, launch in enumerate(launches)
        ]
        # The name that mlx_lm.server knows without a look-up is the one it was started with.
        ours, theirs = (Workload(launch.url, str(model), options.max_tokens, options.endpoint) for launch in launches)
        idle = uvloop.run(idle_shares(servers, (ours, theirs)))
        pairs = uvloop.run(run_pairs(ours, theirs, options.concurrency, options.pairs))
    _tell(idle, pairs, options.out)


def _tell(idle: dict[str, float], pairs: Sequence[Pair], out: Path | None) -> None:
    figures = figures_of(pairs)
    print(
        f"\nconvoy\n{table([pair.ours for pair in pairs])}\n\nmlx_lm.server\n{table([pair.theirs for pair in pairs])}"
    )
    print(f"\nidle share of a processor: {', '.join(f'{name} {share:.3f}' for name, share in idle.items())}")
    print(f"\n{'C':>4} {'tokens/s ratio':>15} {'TTFT p50 ratio':>15} {'largest gap ratio':>18} {'pairs':>6}")
    for line in figures:
        print(
            f"{line.concurrency:>4} {line.throughput_ratio:>15.3f} {line.ttft_p50_ratio:>15.3f}"
            f" {line.largest_gap_ratio:>18.3f} {line.pairs:>6}"
        )
    if out:
        report = {
            "idle_processor_share": idle,
            "figures": [dataclasses.asdict(line) for line in figures],
            "pairs": [dataclasses.asdict(pair) for pair in pairs],
        }
        out.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
