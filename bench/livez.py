"""How a frontend feels while it streams: /livez latency beside many streams, and its resident memory.

Starts our server itself. `python -m bench.livez --help`.
"""

import argparse
import asyncio
import dataclasses
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import psutil
import uvloop

from bench.load import Round, Workload, new_session, percentile, run_round
from bench.servers import RunningServer, free_port, our_launch, running

_PROBE_APART_S: Final = 0.010


@dataclass(frozen=True, slots=True)
class LivezFigures:
    """Latencies of `probes` requests during `rounds`; resident memory of the frontend before any and after all."""

    probes: int
    p50_ms: float
    p99_ms: float
    largest_ms: float
    idle_bytes: int
    loaded_bytes: int
    rounds: list[Round]


async def probe_while_streaming(server: RunningServer, workload: Workload, streams: int, rounds: int) -> LivezFigures:
    """Asks /livez every 10 ms, one request after the other, while `streams` streams run `rounds` times."""
    frontend = frontend_of(server)
    idle_bytes = frontend.memory_info().rss
    latencies_ms: list[float] = []
    async with new_session() as session, asyncio.TaskGroup() as group:
        probing = group.create_task(_probe(session, workload.url, latencies_ms))
        try:
            done = [await run_round(session, workload, streams) for _ in range(rounds)]
        finally:
            probing.cancel()
    return LivezFigures(
        len(latencies_ms),
        percentile(latencies_ms, 0.50),
        percentile(latencies_ms, 0.99),
        max(latencies_ms),
        idle_bytes,
        frontend.memory_info().rss,
        done,
    )


def frontend_of(server: RunningServer) -> psutil.Process:
    """The one frontend process of our server. Raises ValueError when there is not exactly one."""
    (found,) = [child for child in server.process.children(recursive=True) if "frontend" in child.cmdline()]
    return found


async def _probe(session: aiohttp.ClientSession, url: str, latencies_ms: list[float]) -> None:
    while True:
        began_s = time.perf_counter()
        async with session.get(f"{url}/livez") as response:
            await response.read()
            response.raise_for_status()
        latencies_ms.append((time.perf_counter() - began_s) * 1e3)
        await asyncio.sleep(_PROBE_APART_S)


def main() -> None:
    """Probes /livez of a frontend that streams many rows, and weighs it."""
    parser = argparse.ArgumentParser(prog="python -m bench.livez", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        launch = our_launch(options.model.absolute(), free_port(), Path(name) / "run", options.streams)
        with running(launch, Path(name) / "server.log") as server:
            workload = Workload(launch.url, str(options.model), options.max_tokens, ignore_eos=True)
            figures = uvloop.run(probe_while_streaming(server, workload, options.streams, options.rounds))
    print(
        f"/livez beside {options.streams} streams: p50 {figures.p50_ms:.1f} ms, p99 {figures.p99_ms:.1f} ms,"
        f" largest {figures.largest_ms:.1f} ms of {figures.probes};"
        f" frontend {figures.idle_bytes / 1e6:.0f} MB idle, {figures.loaded_bytes / 1e6:.0f} MB after"
    )
    if options.out:
        options.out.write_text(json.dumps(dataclasses.asdict(figures), indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
