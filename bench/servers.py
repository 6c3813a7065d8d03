"""Starts a server as a child process, waits until it answers, and stops it with everything it started.

Owns children and their logs; knows two servers, ours and mlx_lm's, and nothing of what is asked of them.
"""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import psutil

_READY_LIMIT_S: Final = 300.0
_STOP_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server. arguments: after the interpreter; health_path: answers 200 when it can serve."""

    name: str
    arguments: tuple[str, ...]
    port: int
    health_path: str

    @property
    def url(self) -> str:
        """Where it serves, without path."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A started server and its process tree."""

    launch: Launch
    process: psutil.Process

    def cpu_s(self) -> float:
        """Processor seconds of the whole tree so far."""
        times = [process.cpu_times() for process in [self.process, *self.process.children(recursive=True)]]
        return sum(time.user + time.system for time in times)


def our_launch(model: Path, port: int, runtime_dir: Path, max_rows: int) -> Launch:
    """`engine-ctl serve` with one frontend that takes any model name."""
    words = ["-c", "from engine.ctl.app import main; main()", "serve", "--model", str(model), "--port", str(port)]
    words += ["--runtime-dir", str(runtime_dir), "--max-rows", str(max_rows), "--served-model-name", "*"]
    return Launch("convoy", tuple(words), port, "/readyz")


def their_launch(model: Path, port: int) -> Launch:
    """`mlx_lm.server` with its defaults."""
    words = ("-m", "bench.mlx_lm_server", "--model", str(model), "--port", str(port))
    return Launch("mlx_lm.server", words, port, "/health")


def free_port() -> int:
    """A port of this host that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(launch: Launch, log_path: Path) -> Iterator[RunningServer]:
    """The server until the block ends, its output in log_path. Raises RuntimeError when it does not come up."""
    with log_path.open("wb") as log:
        child = subprocess.Popen([sys.executable, *launch.arguments], stdout=log, stderr=subprocess.STDOUT)
        server = RunningServer(launch, psutil.Process(child.pid))
        try:
            if not asyncio.run(_is_ready(launch, child)):
                last = log_path.read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"{launch.name} ended with {child.returncode}: {last}")
            yield server
        finally:
            _stop(child)


async def _is_ready(launch: Launch, child: "subprocess.Popen[bytes]") -> bool:
    """Waits until it answers; False when it has ended before."""
    async with asyncio.timeout(_READY_LIMIT_S), aiohttp.ClientSession() as session:
        while child.poll() is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(launch.url + launch.health_path) as response:
                    if response.status == 200:
                        return True
            await asyncio.sleep(_POLL_S)
    return False


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """Its own way of ending first; what is left of its tree after the limit is killed."""
    if child.poll() is not None:
        return
    tree = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGINT)
    try:
        child.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for process in psutil.wait_procs(tree, timeout=1.0)[1]:
        process.kill()
