"""Real engine processes for tests: started, watched through their sockets, and ended whatever happens."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from protocol.codec import decode_from_engine, decode_status, encode, pack_ids, unpack_ids
from protocol.endpoint import RuntimeFolder, connect_requests, connect_status, open_runtime_folder
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    AnyToEngine,
    ClientInfo,
    Epoch,
    Finish,
    Hello,
    Step,
    Submit,
    SubmitId,
    TokenPrompt,
    Welcome,
)
from protocol.status import EngineStatus

# How long a test waits for what must come; far above what it takes.
PATIENCE_S = 60.0


@contextmanager
def runtime_folder() -> Iterator[RuntimeFolder]:
    """A short path: a socket's may have 103 bytes only."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cv") as path:
        yield open_runtime_folder(Path(path) / "r")


def command(model: Path | str, folder: RuntimeFolder | Path, *options: str) -> list[str]:
    path = folder.path if isinstance(folder, RuntimeFolder) else folder
    return [sys.executable, "-m", "engine", "--model", str(model), "--runtime-dir", str(path), *options]


def ended(arguments: list[str]) -> tuple[int, list[str]]:
    """Exit status and lines on stderr of a process that ends by itself."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


class Watcher:
    """Reads the newest status."""

    def __init__(self, context: "zmq.Context[Any]", folder: RuntimeFolder) -> None:
        self._socket = connect_status(context.socket(zmq.SUB), folder)

    def until(self, *phases: str) -> EngineStatus:
        while True:
            assert self._socket.poll(PATIENCE_S * 1_000), f"no status while waiting for {phases}"
            status = decode_status(self._socket.recv())
            if status.phase in phases:
                return status

    def close(self) -> None:
        self._socket.close()


class Client:
    """One DEALER for one epoch."""

    def __init__(self, context: "zmq.Context[Any]", folder: RuntimeFolder, epoch: str) -> None:
        self._socket = connect_requests(context.socket(zmq.DEALER), folder, os.urandom(8))
        self.epoch = Epoch(epoch)

    def say(self, message: AnyToEngine) -> None:
        self._socket.send(encode(message))

    def next(self) -> AnyFromEngine:
        assert self._socket.poll(PATIENCE_S * 1_000), "no message came"
        return decode_from_engine(self._socket.recv())

    def greet(self) -> Welcome:
        client = ClientInfo(name="test", pid=os.getpid())
        self.say(Hello(epoch=self.epoch, protocol_version=PROTOCOL_VERSION, client=client))
        welcome = self.next()
        assert isinstance(welcome, Welcome)
        return welcome

    def submit(self, id_: str, max_tokens: int, prompt: Sequence[int] = (5, 6, 7)) -> None:
        self.say(
            Submit(
                epoch=self.epoch,
                id=SubmitId(id_),
                group=id_,
                model="tiny",
                prompt=TokenPrompt(ids=pack_ids(list(prompt))),
                max_tokens=max_tokens,
                ignore_eos=True,
            )
        )

    def row(self, id_: str) -> tuple[list[int], Finish]:
        """All tokens of a row and how it ended."""
        tokens: list[int] = []
        while True:
            message = self.next()
            assert isinstance(message, Step)
            for delta in message.rows:
                assert delta.id == id_
                tokens += unpack_ids(delta.tokens)
                if delta.finish is not None:
                    return tokens, delta.finish

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine, seen from outside."""

    process: subprocess.Popen[str]
    folder: RuntimeFolder
    watcher: Watcher
    client: Client

    def exit_status(self) -> tuple[int, str]:
        """Waits for its end; exit status and stderr."""
        _, text = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, text


@contextmanager
def running(model: Path, folder: RuntimeFolder, *options: str) -> Iterator[Engine]:
    """An engine that has said ready."""
    with zmq.Context() as context:
        watcher = Watcher(context, folder)
        process = subprocess.Popen(command(model, folder, *options), stderr=subprocess.PIPE, text=True)
        client: Client | None = None
        try:
            client = Client(context, folder, watcher.until("ready").epoch)
            yield Engine(process, folder, watcher, client)
        finally:
            process.kill()
            process.communicate()
            watcher.close()
            if client is not None:
                client.close()
