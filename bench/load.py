"""A load client: C concurrent streams against any OpenAI-compatible server, timed from outside.

Owns the requests and their clocks; imports neither engine nor frontend. `python -m bench.load --help`.
"""

import argparse
import asyncio
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import aiohttp
import msgspec
import uvloop

from bench.prompts import prompt_of, raw_prompt_of

Endpoint = Literal["chat", "completions"]
START_APART_S: Final = 0.010
_ROUND_LIMIT_S: Final = 1_800


@dataclass(frozen=True, slots=True)
class Workload:
    """What each stream asks for. url: of the server, without path. ignore_eos is sent only when true.

    endpoint: `chat` makes a conversation of a prompt, which begins alike in every stream; `completions` sends it raw.
    """

    url: str
    model: str
    max_tokens: int
    endpoint: Endpoint = "chat"
    ignore_eos: bool = False

    @property
    def address(self) -> str:
        """Where the bodies go."""
        return f"{self.url}/v1/{'chat/completions' if self.endpoint == 'chat' else 'completions'}"

    def body(self, index: int) -> bytes:
        """The JSON body of stream `index`: the same for every server."""
        content: dict[str, object] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.endpoint == "chat":
            content["messages"] = [{"role": "user", "content": prompt_of(index)}]
        else:
            content["prompt"] = raw_prompt_of(index)
        if self.ignore_eos:
            content["ignore_eos"] = True
        return json.dumps(content).encode()


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """One stream's clock, seconds of one monotonic clock. gap: between two frames with text."""

    started_s: float
    first_text_s: float
    ended_s: float
    largest_gap_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round of C streams. tokens_per_s: completion tokens by usage over wall clock, all streams."""

    concurrency: int
    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    largest_gap_ms: float
    wall_s: float
    prompt_tokens: int
    completion_tokens: int


class LoadError(Exception):
    """A stream that did not do what every stream must: the run is worth nothing."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Frame(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, object] | str | None = None


_decode: Final = msgspec.json.Decoder(_Frame).decode


class StreamClock:
    """Reads one stream's frames as they come. now_s: of one monotonic clock."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._first_text_s: float | None = None
        self._last_text_s = started_s
        self._largest_gap_s = 0.0
        self._usage: _Usage | None = None
        self._finish_reason: str | None = None
        self._is_done = False
        self._rest = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Takes bytes in whatever pieces they come. Raises LoadError for an error frame."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_s)

    def timing(self, ended_s: float, max_tokens: int) -> StreamTiming:
        """The finished clock. Raises LoadError when the stream broke off or did not run to its length."""
        if not self._is_done or self._usage is None or self._first_text_s is None:
            raise LoadError("a stream ended without text, usage or [DONE]")
        found = (self._finish_reason, self._usage.completion_tokens)
        if found != ("length", max_tokens):
            raise LoadError(f"a stream must end with ('length', {max_tokens}), not {found}: choose other prompts")
        return StreamTiming(
            self._started_s,
            self._first_text_s,
            ended_s,
            self._largest_gap_s,
            self._usage.prompt_tokens,
            self._usage.completion_tokens,
        )

    def _take(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self._is_done = True
            return
        frame = _decode(payload)
        if frame.error is not None:
            raise LoadError(f"the server says {payload.decode()}")
        self._usage = frame.usage or self._usage
        for choice in frame.choices:
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.text or (choice.delta is not None and (choice.delta.content or choice.delta.reasoning)):
                self._saw_text(now_s)

    def _saw_text(self, now_s: float) -> None:
        if self._first_text_s is None:
            self._first_text_s = now_s
        else:
            self._largest_gap_s = max(self._largest_gap_s, now_s - self._last_text_s)
        self._last_text_s = now_s


async def run_round(session: aiohttp.ClientSession, workload: Workload, concurrency: int) -> Round:
    """C streams, started 10 ms apart, to their ends. Raises LoadError, aiohttp.ClientError, TimeoutError."""
    async with asyncio.timeout(_ROUND_LIMIT_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run_stream(session, workload, index)) for index in range(concurrency)]
    return summarised([task.result() for task in tasks])


def summarised(timings: Sequence[StreamTiming]) -> Round:
    """One round's figures."""
    wall_s = max(timing.ended_s for timing in timings) - min(timing.started_s for timing in timings)
    ttft_ms = [(timing.first_text_s - timing.started_s) * 1e3 for timing in timings]
    completion_tokens = sum(timing.completion_tokens for timing in timings)
    return Round(
        concurrency=len(timings),
        tokens_per_s=completion_tokens / wall_s,
        ttft_p50_ms=percentile(ttft_ms, 0.50),
        ttft_p95_ms=percentile(ttft_ms, 0.95),
        largest_gap_ms=max(timing.largest_gap_s for timing in timings) * 1e3,
        wall_s=wall_s,
        prompt_tokens=sum(timing.prompt_tokens for timing in timings),
        completion_tokens=completion_tokens,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median_round(rounds: Sequence[Round]) -> Round:
    """Field by field the median of rounds of one concurrency."""
    columns = {
        field.name: statistics.median(getattr(a_round, field.name) for a_round in rounds)
        for field in dataclasses.fields(Round)
    }
    return Round(**columns)  # pyright: ignore[reportArgumentType]  # medians of ints may be floats


async def run_load(workload: Workload, concurrencies: Sequence[int], rounds: int) -> list[Round]:
    """A warm-up round at each concurrency, then `rounds` measured ones."""
    measured: list[Round] = []
    async with new_session() as session:
        for concurrency in concurrencies:
            await run_round(session, workload, concurrency)
            measured += [await run_round(session, workload, concurrency) for _ in range(rounds)]
    return measured


def new_session() -> aiohttp.ClientSession:
    """A session without a cap on connections and without a total time limit: a round has its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), read_bufsize=2**20
    )


async def _run_stream(session: aiohttp.ClientSession, workload: Workload, index: int) -> StreamTiming:
    await asyncio.sleep(index * START_APART_S)
    return await timed_stream(session, workload.address, workload.body(index), workload.max_tokens)


async def timed_stream(session: aiohttp.ClientSession, address: str, body: bytes, max_tokens: int) -> StreamTiming:
    """One stream to its end. Raises LoadError, aiohttp.ClientError."""
    clock = StreamClock(time.perf_counter())
    headers = {"Content-Type": "application/json"}
    async with session.post(address, data=body, headers=headers) as response:
        if response.status != 200:
            raise LoadError(f"{address} answered {response.status}: {(await response.text())[:500]}")
        async for data in response.content.iter_any():
            clock.feed(data, time.perf_counter())
    return clock.timing(time.perf_counter(), max_tokens)


def table(rounds: Sequence[Round]) -> str:
    """Medians per concurrency, for a terminal."""
    lines = [f"{'C':>4} {'tokens/s':>9} {'TTFT p50 ms':>12} {'TTFT p95 ms':>12} {'largest gap ms':>15} {'rounds':>7}"]
    for concurrency in dict.fromkeys(a_round.concurrency for a_round in rounds):
        same = [a_round for a_round in rounds if a_round.concurrency == concurrency]
        middle = median_round(same)
        lines.append(
            f"{concurrency:>4} {middle.tokens_per_s:>9.1f} {middle.ttft_p50_ms:>12.1f} {middle.ttft_p95_ms:>12.1f}"
            f" {middle.largest_gap_ms:>15.1f} {len(same):>7}"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs the load and prints medians per concurrency."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=main.__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", required=True, help="the name that the server knows the model by")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--endpoint", choices=["chat", "completions"], default="chat")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ignore-eos", action="store_true", help="for our own server: run to length whatever is said")
    parser.add_argument("--out", type=Path, help="JSON of every round")
    options = parser.parse_args()
    workload = Workload(
        options.url.rstrip("/"), options.model, options.max_tokens, options.endpoint, options.ignore_eos
    )
    rounds = uvloop.run(run_load(workload, options.concurrency, options.rounds))
    print(table(rounds))
    if options.out:
        report = {
            "workload": dataclasses.asdict(workload),
            "rounds": [dataclasses.asdict(a_round) for a_round in rounds],
        }
        options.out.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
