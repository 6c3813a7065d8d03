"""How long a frontend's event loop is held while it reads conversations of 100,000 tokens, and how /livez feels then.

The frontend watches itself (bench.watched_frontend), /livez is asked from outside. `python -m bench.loop_holds --help`.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from bench.load import LoadError, new_session, percentile
from bench.long_chats import LongChat, long_chats
from bench.scripted import Scripted, ScriptedServer, scripted_server
from bench.watched_frontend import Hold, Seen
from tests.fakes.fake_engine import FakeSettings

_PROBE_APART_S: Final = 0.005
_REST_S: Final = 0.2
_WORST: Final = 3
_CONTEXT_TOKENS: Final = 262_144


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that was answered, in monotonic seconds, and what probes took meanwhile."""

    name: str
    began_s: float
    ended_s: float
    livez_ms: list[float]


async def asked(server: ScriptedServer, chats: list[LongChat], rounds: int) -> list[Asked]:
    """Each request in turn, /livez beside it. Raises LoadError for one that is not answered."""
    done: list[Asked] = []
    async with new_session() as session:
        for _ in range(rounds):
            for chat in chats:
                done.append(await _asked(session, server.launch.url, chat))
                # What its end still costs, as the collection of garbage, is its own.
                await asyncio.sleep(_REST_S)
    return done


async def _asked(session: aiohttp.ClientSession, url: str, chat: LongChat) -> Asked:
    livez_ms: list[float] = []
    async with asyncio.TaskGroup() as group:
        probing = group.create_task(_probe(session, f"{url}/livez", livez_ms))
        began_s = time.monotonic()
        headers = {"content-type": "application/json"}
        async with session.post(url + chat.path, data=chat.body, headers=headers) as response:
            reply = await response.read()
            if response.status != 200:
                raise LoadError(f"{chat.name} was answered with {response.status}: {reply[:500]!r}")
        probing.cancel()
    return Asked(chat.name, began_s, time.monotonic() + _REST_S, livez_ms)


async def _probe(session: aiohttp.ClientSession, url: str, latencies_ms: list[float]) -> None:
    while True:
        began_s = time.monotonic()
        async with session.get(url) as response:
            await response.read()
        latencies_ms.append((time.monotonic() - began_s) * 1e3)
        await asyncio.sleep(_PROBE_APART_S)


@contextmanager
def background(server: ScriptedServer, streams: int) -> Iterator[None]:
    """That many streams, round after round, from a process of its own, until the block ends."""
    if not streams:
        yield
        return
    words = ["--url", server.launch.url, "--model", "fake-model", "--concurrency", str(streams), "--ignore-eos"]
    words += ["--max-tokens", "400", "--rounds", "1000"]
    client = subprocess.Popen([sys.executable, "-m", "bench.load", *words])
    try:
        yield
    finally:
        client.terminate()
        client.wait()


def report(done: list[Asked], seen: Seen) -> list[str]:
    """A line of each case: its longest hold over all rounds, and all of its probes."""
    lines: list[str] = []
    for name in dict.fromkeys(one.name for one in done):
        same = [one for one in done if one.name == name]
        holds = [hold for one in same for hold in seen.holds if one.began_s <= hold.began_s <= one.ended_s]
        longest = max((hold.lasted_s for hold in holds), default=0.0) * 1e3
        own = max((hold.own_s for hold in holds), default=0.0) * 1e3
        probes = [latency for one in same for latency in one.livez_ms]
        line = f"{name:22} longest hold {longest:6.1f} ms, {own:5.1f} without waits for a processor;"
        lines.append(f"{line} {_probed(probes)}")
        worst = sorted(holds, key=lambda hold: hold.own_s, reverse=True)[:_WORST]
        lines += [f"    {hold.own_s * 1e3:6.1f} ms: {_ran(hold, seen)}" for hold in worst if seen.samples]
    return lines


def _probed(latencies_ms: list[float]) -> str:
    """A case may be over before its first probe."""
    if not latencies_ms:
        return "/livez not asked meanwhile"
    p50, p99 = percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99)
    return f"/livez p50 {p50:5.1f}, p99 {p99:6.1f}, largest {max(latencies_ms):6.1f} ms of {len(latencies_ms)}"


def _ran(hold: Hold, seen: Seen) -> str:
    """What was seen in the threads while the loop was held, and at once after it: a held lock lets nobody look."""
    ended_s = hold.began_s + hold.lasted_s
    during = [sample for sample in seen.samples if hold.began_s <= sample.at_s <= ended_s]
    after = next((sample for sample in seen.samples if sample.at_s > ended_s), None)
    counts = Counter(
        f"{thread}: {where}"
        for sample in (during or ([] if after is None else [after]))
        for thread, where in sample.threads.items()
        if "selectors" not in where
    )
    return ("" if during else "(after) ") + "; ".join(f"{count}x {what}" for what, count in counts.most_common(4))


def main() -> None:
    """Asks each request, and tells the loop's longest hold and what probes took."""
    parser = argparse.ArgumentParser(prog="python -m bench.loop_holds", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder; only its tokenizer is read")
    parser.add_argument("--characters", type=int, default=300_000, help="of each conversation; three make a token")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=0, help="that run beside")
    parser.add_argument("--step-ms", type=float, default=40.0)
    parser.add_argument("--only", nargs="*", default=[], help="names of cases")
    parser.add_argument("--sampled", action="store_true", help="says what ran meanwhile; looking costs some time")
    parser.add_argument("--chat-template", help="in place of the model's")
    options = parser.parse_args()
    chats = [chat for chat in long_chats(options.characters) if not options.only or chat.name in options.only]
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        engine = FakeSettings(
            runtime_dir=f"{name}/run",
            model=str(options.model.absolute()),
            max_rows=options.streams + 8,
            prefill_tokens_per_turn=_CONTEXT_TOKENS,
            context_length=_CONTEXT_TOKENS,
            step_ms=options.step_ms,
        )
        seen_path = Path(name) / "seen.json"
        template = ("--chat-template", options.chat_template) if options.chat_template else ()
        frontend = ("-m", "bench.watched_frontend", str(seen_path), "sampled" if options.sampled else "plain")
        scripted = Scripted(engine=engine, told_path=Path(name) / "told.json", frontend=(*frontend, *template))
        with scripted_server(scripted) as server, background(server, options.streams):
            done = asyncio.run(asked(server, chats, options.rounds))
            memory = server.frontend.memory_info().rss / 1e6
        seen = msgspec.json.decode(seen_path.read_bytes(), type=Seen)
    print("\n".join(report(done, seen)))
    print(f"the frontend has {memory:.0f} MB")


if __name__ == "__main__":
    main()
