"""The frontend process: start, refusal to start, stop."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from protocol.errors import EXIT_BAD_SETTING
from tests.fakes.deadline import until
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.fake_settings import FakeSettings
from tests.fakes.processes import ROOT, child
from tests.fakes.serving import decoded_events


def refusal(*arguments: str, pass_fds: tuple[int, ...] = ()) -> tuple[int, list[str]]:
    """Exit status and lines of stderr of a frontend that should not start."""
    with child(["-m", "frontend", *arguments], pass_fds=pass_fds) as process:
        return process.ended(), process.said().splitlines()


async def wait_for(session: ClientSession, url: str, status: int = 200) -> None:
    """Until a GET of url answers with status."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with session.get(url) as response:
                    if response.status == status:
                        return
            except ClientError:
                pass
            await asyncio.sleep(0.02)


def listening_socket() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    return listener


def test_unknown_option_is_refused(runtime_dir: Path) -> None:
    """One line that names the option, and the exit status that says never again."""
    status, lines = refusal("--runtime-dir", str(runtime_dir), "--colour", "blue")
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert "--colour" in lines[0]


@pytest.mark.parametrize("flag", ["--tool-parser", "--reasoning-parser"])
def test_an_unknown_parser_is_refused(runtime_dir: Path, flag: str) -> None:
    """One line that lists those that there are."""
    status, lines = refusal("--runtime-dir", str(runtime_dir), flag, "hermse")
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert f"{flag} hermse: there is no such parser; take none or one of " in lines[0]
    assert "mistral" in lines[0]


def test_busy_port_is_refused(runtime_dir: Path) -> None:
    """One line that names the port."""
    with listening_socket() as holder:
        port = holder.getsockname()[1]
        status, lines = refusal("--runtime-dir", str(runtime_dir), "--port", str(port))
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert f"--port {port}" in lines[0]
    assert "in use" in lines[0]


def test_descriptor_that_is_no_listener_is_refused(runtime_dir: Path) -> None:
    """A pipe, a closed descriptor and a socket that does not listen are named, each in one line."""
    reader, writer = os.pipe()
    with socket.socket() as idle:
        for descriptor in (reader, 987, idle.fileno()):
            fds = () if descriptor == 987 else (descriptor,)
            status, lines = refusal("--runtime-dir", str(runtime_dir), "--fd", str(descriptor), pass_fds=fds)
            assert status == EXIT_BAD_SETTING
            assert len(lines) == 1
            assert f"--fd {descriptor}" in lines[0]
    os.close(reader)
    os.close(writer)


def test_open_runtime_folder_is_refused(runtime_dir: Path) -> None:
    """A folder that others may enter is not used."""
    runtime_dir.chmod(0o755)
    status, lines = refusal("--runtime-dir", str(runtime_dir), "--port", "0")
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert "chmod 700" in lines[0]


def test_a_key_file_without_a_key_is_refused(runtime_dir: Path) -> None:
    """A frontend that was to ask for keys never starts without."""
    (runtime_dir / "keys").touch()
    arguments = ["--runtime-dir", str(runtime_dir), "--port", "0", "--api-key-file", str(runtime_dir / "keys")]
    status, lines = refusal(*arguments)
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert "there is no key in it" in lines[0]


async def test_a_frontend_with_a_key_file_asks_for_keys(runtime_dir: Path) -> None:
    """The file's key is let in, nobody else; the process says the file's name and not the key."""
    (runtime_dir / "keys").write_text("sesame\n")
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = ["-m", "frontend", "--runtime-dir", str(runtime_dir), "--fd", str(listener.fileno())]
        arguments += ["--api-key-file", str(runtime_dir / "keys"), "--log-level", "debug"]
        with child(arguments, pass_fds=[listener.fileno()]) as process:
            async with ClientSession() as session:
                await wait_for(session, f"{url}/livez")
                for key, status in (("sesame", 200), ("simsim", 401)):
                    async with session.get(f"{url}/stats", headers={"authorization": f"Bearer {key}"}) as response:
                        assert response.status == status
            process.terminate()
            assert process.ended() == 0
            assert "request.done" in process.said()
            assert "sesame" not in process.said()


async def test_inherited_socket_serves_and_sigterm_lets_streams_finish(runtime_dir: Path) -> None:
    """--fd serves; after SIGTERM a running stream goes on to its end, and the exit status is 0."""
    engine = FakeEngine(FakeSettings(runtime_dir=str(runtime_dir), step_ms=5)).start()
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = ["-m", "frontend", "--runtime-dir", str(runtime_dir), "--fd", str(listener.fileno())]
        with child(arguments, pass_fds=[listener.fileno()]) as process:
            async with ClientSession() as session:
                await wait_for(session, f"{url}/readyz")
                body = {"prompt": "!count", "max_tokens": 100, "stream": True}
                body["stream_options"] = {"include_usage": True}
                async with session.post(f"{url}/v1/completions", json=body) as response:
                    first = await response.content.readuntil(b"\n\n")
                    process.terminate()
                    rest = await response.content.read()
            status = process.ended()
    engine.stop()
    events = decoded_events(first + rest)
    assert events[-1] == "[DONE]"
    assert events[-2]["usage"]["completion_tokens"] == 100
    assert status == 0
    assert engine.cancels() == []


async def test_streams_end_with_the_grace(runtime_dir: Path) -> None:
    """A stream that outlives the grace is cut, its row cancelled, and the exit status is 0 all the same."""
    engine = FakeEngine(FakeSettings(runtime_dir=str(runtime_dir), step_ms=5)).start()
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = ["-m", "frontend", "--runtime-dir", str(runtime_dir), "--fd", str(listener.fileno())]
        with child([*arguments, "--grace-s", "0.2"], pass_fds=[listener.fileno()]) as process:
            async with ClientSession() as session:
                await wait_for(session, f"{url}/readyz")
                body = {"prompt": "!count", "stream": True, "max_tokens": 2_000}
                async with session.post(f"{url}/v1/completions", json=body) as response:
                    await response.content.readuntil(b"\n\n")
                    process.terminate()
                    status = process.ended()
    engine.stop()
    assert status == 0
    assert [cancel.reason for cancel in engine.cancels()] == ["gone"]


async def test_leaves_with_its_parent(runtime_dir: Path) -> None:
    """With --exit-with-parent the frontend does not outlive a parent that was killed."""
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        frontend = [sys.executable, "-m", "frontend", "--runtime-dir", str(runtime_dir), "--exit-with-parent"]
        frontend += ["--fd", str(listener.fileno())]
        parent_code = f"import subprocess; subprocess.run({frontend!r}, close_fds=False, cwd={str(ROOT)!r})"
        with child(["-c", parent_code], pass_fds=[listener.fileno()]) as parent:
            async with ClientSession() as session:
                await wait_for(session, f"{url}/livez")
                async with session.get(f"{url}/stats") as response:
                    pid = json.loads(await response.read())["frontend"]["pid"]
                parent.kill()
                await until(lambda: not _is_running(pid), "the frontend ends")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that has ended stays a zombie where nobody reaps it.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_two_ways_to_listen_are_refused(runtime_dir: Path) -> None:
    """--fd with --port is a contradiction, not a preference."""
    with listening_socket() as listener:
        arguments = ["--fd", str(listener.fileno()), "--port", "0"]
        status, lines = refusal("--runtime-dir", str(runtime_dir), *arguments, pass_fds=(listener.fileno(),))
    assert status == EXIT_BAD_SETTING
    assert len(lines) == 1
    assert "excludes --host and --port" in lines[0]
