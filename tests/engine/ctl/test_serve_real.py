"""`engine-ctl serve` as a user runs it: the real engine, two real frontends, SmolLM2."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from protocol.errors import EXIT_BAD_SETTING

ENGINE_CTL = [sys.executable, "-c", "from engine.ctl.app import main; main()"]
QUESTION = b'{"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16}'


@contextmanager
def serving(runtime_dir: Path) -> Iterator["subprocess.Popen[str]"]:
    """A supervisor with two frontends, in a session of its own; ended by force if the test left it."""
    command = [*ENGINE_CTL, "serve", "--port", "0", "--port", "0", "--runtime-dir", str(runtime_dir)]
    with (
        (runtime_dir / "stderr.log").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def served_urls(process: "subprocess.Popen[str]") -> list[str]:
    """Waits for the `serving … at URL` lines of both frontends."""
    assert process.stdout is not None
    urls: list[str] = []
    for line in process.stdout:
        if line.startswith("serving "):
            urls.append(line.split(" at ")[1].split()[0])
        if len(urls) == 2:
            break
    return urls


def ask(url: str) -> str:
    """The answer of one chat request."""
    request = Request(f"{url}/chat/completions", data=QUESTION, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        return msgspec.json.decode(response.read())["choices"][0]["message"]["content"]


def status(runtime_dir: Path) -> dict[str, Any]:
    """What `engine-ctl status --json` prints."""
    command = [*ENGINE_CTL, "status", "--json", "--runtime-dir", str(runtime_dir)]
    return msgspec.json.decode(subprocess.run(command, capture_output=True, timeout=60).stdout)


@pytest.mark.real_model
def test_serves_restarts_and_stops(runtime_dir: Path) -> None:
    """Says where it serves; a killed frontend refuses nothing; SIGTERM ends it with 0 and leaves no process."""
    with serving(runtime_dir) as process:
        urls = served_urls(process)
        # Two frontends and an engine say what they are, and nothing of their routine.
        events = {line.split()[4] for line in (runtime_dir / "stderr.log").read_text().splitlines() if " INFO " in line}
        of_engine = {"engine.settings", "engine.cpu", "memory.budget", "engine.ready"}
        assert events <= {"frontend.listening", *of_engine, "engine.connected"}
        assert [ask(url) for url in urls] == ["The capital of France is Paris."] * 2
        before = status(runtime_dir)
        assert (before["phase"], before["model"]["id"]) == ("ready", "SmolLM2-135M-Instruct")
        told = [f"http://127.0.0.1:{frontend['port']}/v1" for frontend in before["frontends"]]
        assert sorted(told) == sorted(urls)
        os.kill(before["frontends"][0]["pid"], signal.SIGKILL)
        assert ask(told[0]) == "The capital of France is Paris."
        after = status(runtime_dir)
        assert (after["pid"], [frontend["restarts"] for frontend in after["frontends"]]) == (before["pid"], [1, 0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for pid in (after["pid"], *(frontend["pid"] for frontend in after["frontends"])):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    assert status(runtime_dir) == {"phase": "stopped"}


def test_a_model_that_cannot_be_loaded_is_one_line(runtime_dir: Path, tmp_path: Path) -> None:
    """F8: an empty folder; exit 78, the engine's reason on stderr, nothing left."""
    arguments = ["serve", "--port", "0", "--runtime-dir", str(runtime_dir), "--log-level", "error"]
    ended = subprocess.run(
        [*ENGINE_CTL, *arguments, "--model", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == EXIT_BAD_SETTING
    assert ended.stderr.count("\n") == 1
    assert str(tmp_path) in ended.stderr
    assert status(runtime_dir) == {"phase": "stopped"}
