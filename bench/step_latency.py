"""From an engine's step to the bytes at a client: how long a token takes through a frontend, for many streams at once.

A scripted engine, the frontend and this client are processes with one clock. `python -m bench.step_latency --help`.
"""

import argparse
import json
import selectors
import socket
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from tokenizers import Tokenizer

from bench.frontend_tokens import TOOLS
from bench.load import LoadError, percentile
from bench.scripted import Scripted, Told, read_told, scripted_server
from tests.fakes.fake_engine import FakeSettings

_WORD: Final = " fox"
_STREAM_LIMIT_S: Final = 120.0
_READ_BYTES: Final = 65_536


class Piece(NamedTuple):
    """What a client got of a stream's text, and when. at_s: monotonic seconds."""

    at_s: float
    text: str


@dataclass(slots=True, eq=False)
class _Stream:
    socket: socket.socket
    reads: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])


@dataclass(frozen=True, slots=True)
class Kind:
    """Streams of one kind: what their chat asks for, whether it has tools."""

    name: str
    content: str
    has_tools: bool


def kinds(tokens: int) -> list[Kind]:
    """Text; the same where calls are looked for; arguments of a call. Each token of theirs makes text."""
    call = '<tool_call>\n{"name": "write_file", "arguments": {"path": "' + _WORD * tokens
    return [
        Kind("text", "!flood 1", has_tools=False),
        Kind("calls looked for", "!flood 1", has_tools=True),
        Kind("arguments of a call", f"!echo {call}", has_tools=True),
    ]


def body_of(kind: Kind, tokens: int) -> bytes:
    """The chat's JSON."""
    content: dict[str, object] = {
        "messages": [{"role": "user", "content": kind.content}],
        "stream": True,
        "max_tokens": tokens,
    }
    if kind.has_tools:
        tools = [{"name": tool.name, "parameters": tool.parameters} for tool in TOOLS.values()]
        content["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return json.dumps(content).encode()


def drained(port: int, body: bytes, streams: int) -> list[list[tuple[float, bytes]]]:
    """Reads that many streams side by side to their ends; each read with its time. Raises LoadError."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    deadline_s = time.monotonic() + _STREAM_LIMIT_S
    opened = [_Stream(socket.create_connection(("127.0.0.1", port))) for _ in range(streams)]
    with selectors.DefaultSelector() as selector:
        for stream in opened:
            stream.socket.sendall(request)
            stream.socket.setblocking(False)
            selector.register(stream.socket, selectors.EVENT_READ, stream)
        while selector.get_map():
            if time.monotonic() > deadline_s:
                raise LoadError(f"streams did not end within {_STREAM_LIMIT_S:.0f} s")
            for key, _ in selector.select(1.0):
                data = key.data.socket.recv(_READ_BYTES)
                key.data.reads.append((time.monotonic(), data))
                if not data:
                    selector.unregister(key.data.socket)
                    key.data.socket.close()
    return [stream.reads for stream in opened]


class _Function(msgspec.Struct):
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] = []


class _Choice(msgspec.Struct):
    delta: _Delta
    index: int = 0


class _Frame(msgspec.Struct):
    id: str
    choices: list[_Choice] = []


@dataclass(frozen=True, slots=True)
class Heard:
    """One stream as its client has it. id: of the row."""

    id: str
    pieces: list[Piece]


def heard(reads: Sequence[tuple[float, bytes]]) -> Heard:
    """The pieces of a chunked response; a piece came with the read that brought its last byte. Raises LoadError."""
    ends = list(accumulate(len(data) for _, data in reads))
    raw = b"".join(data for _, data in reads)
    if not raw.startswith(b"HTTP/1.1 200 "):
        raise LoadError(f"the frontend answered {raw[:500].decode(errors='replace')}")
    pieces: list[Piece] = []
    id_ = ""
    at = 0
    # An event is one line, and never cut by the marks of a chunk: each write is a chunk of its own.
    while (start := raw.find(b"data: {", at)) >= 0:
        at = raw.index(b"\n", start)
        frame = msgspec.json.decode(raw[start + 6 : at], type=_Frame)
        id_ = frame.id
        for delta in (choice.delta for choice in frame.choices):
            text = (delta.content or "") + "".join(call.function.arguments for call in delta.tool_calls)
            if text:
                pieces.append(Piece(reads[bisect_left(ends, at + 1)][0], text))
    return Heard(f"{id_}/0", pieces)


def latencies_ms(told: Sequence[Told], pieces: Sequence[Piece], tokenizer: Tokenizer) -> list[float]:
    """Of each token of the pieces' text, from its step to the piece with its last character.

    Raises LoadError when the text is none of the told one.
    """
    spelled = [(turn.at_s, tokenizer.decode([id_], skip_special_tokens=False)) for turn in told for id_ in turn.ids]
    whole, text = "".join(part for _, part in spelled), "".join(piece.text for piece in pieces)
    offset = whole.find(text)
    if offset < 0 or not text:
        raise LoadError(f"a stream said {text[:80]!r}, which the engine did not tell: {whole[:80]!r}")
    ends = list(accumulate((len(piece.text) for piece in pieces), initial=offset))[1:]
    found: list[float] = []
    end = 0
    for at_s, part in spelled:
        end += len(part)
        if offset < end <= ends[-1]:
            found.append((pieces[bisect_left(ends, end)].at_s - at_s) * 1e3)
    return found


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Of all tokens of all streams. period_ms: median time between two steps."""

    kind: str
    period_ms: float
    tokens: int
    p50_ms: float
    p99_ms: float
    largest_ms: float


def measured(scripted: Scripted, kind: Kind, streams: int, tokens: int) -> LatencyFigures:
    """One run. The first tenth of each stream is its warm-up, while others begin."""
    with scripted_server(scripted) as server:
        reads = drained(server.launch.port, body_of(kind, tokens), streams)
    told = read_told(scripted.told_path)
    tokenizer = Tokenizer.from_file(str(Path(scripted.engine.model) / "tokenizer.json"))
    found: list[float] = []
    for stream in map(heard, reads):
        found += latencies_ms(told[stream.id], stream.pieces, tokenizer)[tokens // 10 :]
    times = [turn.at_s for turn in next(iter(told.values()))]
    periods_ms = [(later - earlier) * 1e3 for earlier, later in pairwise(times)]
    return LatencyFigures(
        kind.name,
        percentile(periods_ms, 0.5),
        len(found),
        percentile(found, 0.50),
        percentile(found, 0.99),
        max(found),
    )


def main() -> None:
    """Measures each kind of stream at each pace, and prints a line of each."""
    parser = argparse.ArgumentParser(prog="python -m bench.step_latency", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder; only its tokenizer is read")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=500, help="of each stream")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[10.0, 5.0])
    options = parser.parse_args()
    for step_ms in options.step_ms:
        for kind in kinds(options.tokens):
            with tempfile.TemporaryDirectory(prefix="cv-") as name:
                engine = FakeSettings(
                    runtime_dir=f"{name}/run",
                    model=str(options.model.absolute()),
                    max_rows=options.streams,
                    prefill_tokens_per_turn=8_192,
                    context_length=8_192,
                    step_ms=step_ms,
                )
                scripted = Scripted(engine=engine, told_path=Path(name) / "told.json")
                figures = measured(scripted, kind, options.streams, options.tokens)
            print(
                f"{figures.kind:20} a step every {figures.period_ms:4.1f} ms: p50 {figures.p50_ms:5.2f} ms,"
                f" p99 {figures.p99_ms:5.2f} ms, largest {figures.largest_ms:5.2f} ms of {figures.tokens:,} tokens"
            )


if __name__ == "__main__":
    main()
