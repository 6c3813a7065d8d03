"""A frontend process over a scripted engine process: what a frontend alone does, without a model.

Owns both processes, and knows which tokens the engine told when; what rows say are the tests' scripts.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

from bench.servers import Launch, free_port, running
from protocol.codec import unpack_ids
from protocol.messages import RowDelta
from protocol.settings import changed_settings, parse_settings
from tests.fakes.fake_engine import FakeEngine, FakeSettings
from tests.fakes.fake_rows import FakeRows

_STOP_LIMIT_S: Final = 30.0


class Told(NamedTuple):
    """Tokens of one row in one step. at_s: monotonic seconds just before the step was encoded and sent."""

    at_s: float
    ids: list[int]


@dataclass(slots=True, eq=False)
class TimedRows(FakeRows):
    """Notes when each row's tokens are told, by the row's id."""

    told: dict[str, list[Told]] = field(default_factory=dict[str, list[Told]])

    def turn(self) -> dict[bytes, list[RowDelta]]:
        """As of any rows."""
        # Without its arguments `super` does not find the class that a dataclass with slots is made anew as.
        deltas = FakeRows.turn(self)
        now_s = time.monotonic()
        for delta in (delta for rows in deltas.values() for delta in rows if delta.tokens):
            self.told.setdefault(delta.id, []).append(Told(now_s, unpack_ids(delta.tokens)))
        return deltas


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """How to start both. told_path: where the engine writes what it told, at its end.

    frontend: its command after the interpreter, without what says where it serves.
    """

    engine: FakeSettings
    told_path: Path
    frontend: tuple[str, ...] = ("-m", "frontend")


@dataclass(frozen=True, slots=True)
class ScriptedServer:
    """Both processes while they run."""

    launch: Launch
    frontend: psutil.Process


@contextmanager
def scripted_server(scripted: Scripted) -> Iterator[ScriptedServer]:
    """Both processes until the block ends. Raises RuntimeError when they do not come up."""
    given = changed_settings(scripted.engine).items()
    words = [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]
    engine = subprocess.Popen([sys.executable, "-m", "bench.scripted", str(scripted.told_path), *words])
    place = ("--runtime-dir", scripted.engine.runtime_dir, "--port", str(port := free_port()))
    launch = Launch("frontend", (*scripted.frontend, *place), port, "/readyz")
    try:
        with running(launch, scripted.told_path.with_suffix(".log")) as server:
            yield ScriptedServer(launch, server.process)
    finally:
        engine.terminate()
        engine.wait(_STOP_LIMIT_S)


def read_told(path: Path) -> dict[str, list[Told]]:
    """What the engine told, after its end."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Told]])


def main(arguments: Sequence[str]) -> None:
    """The engine's process: the file for what it tells, then the scripted engine's flags."""
    path, *flags = arguments
    engine = FakeEngine(parse_settings(FakeSettings, flags, "bench.scripted"))
    plain = engine.rows
    engine.rows = rows = TimedRows(
        max_rows=plain.max_rows,
        prefill_tokens_per_turn=plain.prefill_tokens_per_turn,
        context_length=plain.context_length,
        eos_id=plain.eos_id,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: engine.request_stop())
    engine.run()
    Path(path).write_bytes(msgspec.json.encode(rows.told))


if __name__ == "__main__":
    main(sys.argv[1:])
