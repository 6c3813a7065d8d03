"""One engine process and its frontend processes, for tests that see only HTTP and the wire."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import platformdirs

from tests.fakes.processes import Child, child

EngineKind = Literal["fake", "real"]

CONTEXT_TOKENS = 512
MAX_ROWS = 8
# On a busy machine a process may not run for seconds; no test here waits until one is given up for that.
PATIENCE_S = 60.0
STALL_S = 1.0
MODEL_ID = "e2e-model"
START_LIMIT_S = 100.0


@dataclass(frozen=True, slots=True)
class Frontend:
    """A frontend process. url: without a path."""

    process: Child
    url: str


@dataclass(slots=True, eq=False)
class Cluster:
    """kind: what the engine is. Two frontends run from the start; a test may add its own."""

    kind: EngineKind
    runtime_dir: Path
    engine: Child
    frontends: list[Frontend] = field(default_factory=list[Frontend])

    @property
    def url(self) -> str:
        """The first frontend."""
        return self.frontends[0].url

    def tokens(self, *, fake: int, real: int) -> int:
        """How many tokens last a second or two: a scripted step takes 4 ms, SmolLM2's on a busy CPU 100 and more."""
        return fake if self.kind == "fake" else real


def smollm2_folder() -> Path:
    """Where `engine-ctl pull smollm2` leaves the model."""
    folder = platformdirs.user_cache_path("convoy") / "models" / "SmolLM2-135M-Instruct"
    assert folder.is_dir(), f"no model in {folder}: run `engine-ctl pull smollm2`"
    return folder


@contextmanager
def running_cluster(
    kind: EngineKind,
    runtime_dir: Path,
    context_tokens: int | None = CONTEXT_TOKENS,
    *,
    engine_arguments: Sequence[str] = (),
    frontend_arguments: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Starts everything, waits until both frontends are ready, and ends it all.

    context_tokens: None for what the model has. engine_arguments: what is given twice counts as it is given last.
    """
    with ExitStack() as stack:
        arguments = _engine_arguments(kind, runtime_dir, context_tokens)
        engine = stack.enter_context(child([*arguments, *engine_arguments]))
        cluster = Cluster(kind, runtime_dir, engine)
        for _ in range(2):
            cluster.frontends.append(
                stack.enter_context(running_frontend(runtime_dir, frontend_arguments=frontend_arguments))
            )
        for frontend in cluster.frontends:
            wait_ready(frontend, engine)
        yield cluster


@contextmanager
def running_frontend(
    runtime_dir: Path, served_name: str = "my-name", *, frontend_arguments: Sequence[str] = ()
) -> Iterator[Frontend]:
    """One more frontend, on a port that is bound here and inherited."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        port = listener.getsockname()[1]
        arguments = ["-m", "frontend", "--runtime-dir", str(runtime_dir), "--fd", str(listener.fileno())]
        arguments += ["--stall-s", str(STALL_S), "--engine-wait-s", str(PATIENCE_S), "--log-level", "warning"]
        arguments += ["--served-model-name", served_name]
        arguments += frontend_arguments
        with child(arguments, pass_fds=[listener.fileno()]) as process:
            yield Frontend(process, f"http://127.0.0.1:{port}")


@contextmanager
def supervised(
    runtime_dir: Path, model: Path, step_limit_s: float = 120.0, silence_limit_s: float = 150.0
) -> Iterator[Frontend]:
    """The supervisor's process, and where its frontend listens. The model may bring code of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        arguments = ["-m", "tests.fakes.watched_serve", str(runtime_dir), str(model), str(descriptor)]
        arguments += [str(step_limit_s), str(silence_limit_s)]
        with child(arguments, pass_fds=[descriptor]) as process:
            yield Frontend(process, f"http://127.0.0.1:{listener.getsockname()[1]}")


def wait_ready(frontend: Frontend, engine: Child) -> None:
    """Polls /readyz; fails with what the processes said when one of them ends, or the time is over."""
    deadline_s = time.monotonic() + START_LIMIT_S
    last = "no answer"
    while time.monotonic() < deadline_s:
        for process in (frontend.process, engine):
            assert process.poll() is None, process.said()
        try:
            with urlopen(f"{frontend.url}/readyz", timeout=5) as response:
                assert json.loads(response.read())["ready"] is True
                return
        except HTTPError as error:
            last = error.read().decode()
        except (URLError, TimeoutError) as error:
            last = str(error)
        time.sleep(0.05)
    raise AssertionError(f"not ready after {START_LIMIT_S} s: {last}; the engine said: {engine.said()}")


def wait_not_ready(frontend: Frontend, limit_s: float = 60.0) -> None:
    """Polls /readyz until it says no."""
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            urlopen(f"{frontend.url}/readyz", timeout=limit_s).close()
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return
            raise
        assert time.monotonic() < deadline_s, f"ready for {limit_s} s"
        time.sleep(0.01)


def stats(url: str) -> dict[str, Any]:
    """Body of /stats, synchronously."""
    with urlopen(f"{url}/stats", timeout=10) as response:
        return json.loads(response.read())


def cancels_of(found: dict[str, Any]) -> int:
    """Cancels that this frontend has sent for clients that went; the engine tells its own counts a little later."""
    return found["frontend"]["cancels_sent"].get("gone", 0)


def wait_stats(url: str, is_seen: Callable[[dict[str, Any]], bool], what: str, limit_s: float = 60.0) -> dict[str, Any]:
    """The first /stats for which is_seen() holds."""
    deadline_s = time.monotonic() + limit_s
    while True:
        found = stats(url)
        if is_seen(found):
            return found
        assert time.monotonic() < deadline_s, f"after {limit_s} s: {what}; rows: {found['engine']['rows']}"
        time.sleep(0.01)


def _engine_arguments(kind: EngineKind, runtime_dir: Path, context_tokens: int | None) -> list[str]:
    shared = ["--runtime-dir", str(runtime_dir), "--model-id", MODEL_ID, "--max-rows", str(MAX_ROWS)]
    shared += ["--lease-s", str(PATIENCE_S)]
    if context_tokens is not None:
        shared += ["--context-length", str(context_tokens)]
    if kind == "fake":
        return ["-m", "tests.fakes.fake_engine", *shared, "--step-ms", "4", "--prefill-tokens-per-turn", "16"]
    return ["-m", "engine", "--model", str(smollm2_folder()), *shared]
