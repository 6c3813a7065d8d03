"""What a short prompt waits that comes just after a long one, from outside: times to first token, and those alone.

Owns the two prompts and when they come; the clocks are load.py's. `python -m bench.behind --help`.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import uvloop

from bench.load import StreamTiming, new_session, timed_stream
from bench.servers import free_port, our_launch, running

_REPLY_TOKENS: Final = 16
_LEAST_ID: Final = 1_000
_MOST_ID: Final = 20_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the two prompts. after_s: how much later the short one comes."""

    long_tokens: int
    short_tokens: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Times to first token: of each prompt alone, and of both where the short one comes behind the long one."""

    short_alone_ms: float
    long_alone_ms: float
    short_behind_ms: float
    long_before_ms: float


def body_of(tokens: int, dice: random.Random) -> bytes:
    """A request whose prompt no other begins like, so that no cache knows it."""
    prompt = [dice.randrange(_LEAST_ID, _MOST_ID) for _ in range(tokens)]
    content = {"model": "any", "prompt": prompt, "max_tokens": _REPLY_TOKENS, "temperature": 0.0, "ignore_eos": True}
    return json.dumps({**content, "stream": True, "stream_options": {"include_usage": True}}).encode()


async def run_once(session: aiohttp.ClientSession, url: str, lengths: Lengths, dice: random.Random) -> Waits:
    """Each alone, then both. Raises LoadError, aiohttp.ClientError."""

    async def ask(tokens: int, after_s: float = 0.0) -> StreamTiming:
        await asyncio.sleep(after_s)
        return await timed_stream(session, f"{url}/v1/completions", body_of(tokens, dice), _REPLY_TOKENS)

    short_alone = await ask(lengths.short_tokens)
    long_alone = await ask(lengths.long_tokens)
    async with asyncio.TaskGroup() as group:
        long_before = group.create_task(ask(lengths.long_tokens))
        short_behind = group.create_task(ask(lengths.short_tokens, lengths.after_s))
    return Waits(
        *(_ttft_ms(timing) for timing in (short_alone, long_alone, short_behind.result(), long_before.result()))
    )


def _ttft_ms(timing: StreamTiming) -> float:
    return (timing.first_text_s - timing.started_s) * 1e3


def table(waits: Sequence[Waits]) -> str:
    """Medians, for a terminal."""
    lines = [f"{'TTFT ms':<8} {'alone':>9} {'together':>9}   ({len(waits)} rounds)"]
    for name, alone, together in (
        ("short", [each.short_alone_ms for each in waits], [each.short_behind_ms for each in waits]),
        ("long", [each.long_alone_ms for each in waits], [each.long_before_ms for each in waits]),
    ):
        lines.append(f"{name:<8} {statistics.median(alone):>9.0f} {statistics.median(together):>9.0f}")
    return "\n".join(lines)


async def _rounds(url: str, lengths: Lengths, rounds: int) -> list[Waits]:
    dice = random.Random(1)
    async with new_session() as session:
        await run_once(session, url, Lengths(lengths.short_tokens, lengths.short_tokens, 0.0), dice)
        return [await run_once(session, url, lengths, dice) for _ in range(rounds)]


def main() -> None:
    """Serves one model and prints medians of the times to first token."""
    parser = argparse.ArgumentParser(prog="python -m bench.behind", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--long", type=int, default=4_000, help="tokens of the long prompt")
    parser.add_argument("--short", type=int, default=31, help="tokens of the short one")
    parser.add_argument("--after-s", type=float, default=0.3, help="when the short one comes, after the long one")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cv-") as scratch:
        launch = our_launch(options.model.absolute(), free_port(), Path(scratch) / "run", 32)
        with running(launch, Path(scratch) / "log"):
            lengths = Lengths(options.long, options.short, options.after_s)
            print(table(uvloop.run(_rounds(launch.url, lengths, options.rounds))))


if __name__ == "__main__":
    main()
