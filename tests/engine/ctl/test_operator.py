"""An operator's commands over the wire: to a scripted engine, and from the command line to the real one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.random_model import TINY_LLAMA, build_random_model
from engine.ctl.failure import EXIT_NOT_RUNNING, CommandError
from engine.ctl.operator import command, engine_in
from protocol.endpoint import RuntimeFolder, open_runtime_folder
from protocol.messages import Control, Leave
from protocol.status import PrefixStatus
from tests.fakes.adapters import build_adapter
from tests.fakes.deadline import until
from tests.fakes.engine_process import Engine, running
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.fake_settings import FakeSettings


async def test_the_engines_no_is_the_commands(runtime_dir: Path) -> None:
    """What the engine answers is the one line that the user sees; it heard the command as it was given."""
    engine = FakeEngine(FakeSettings(runtime_dir=str(runtime_dir))).start()
    try:
        with pytest.raises(CommandError, match="not supported"):
            command(RuntimeFolder(runtime_dir), "mount_adapter", "a=/b")
        (control,) = [message for message in engine.heard if isinstance(message, Control)]
        assert (control.command, control.argument) == ("mount_adapter", "a=/b")
        # The engine waits for no lease of a client that is long gone.
        await until(lambda: isinstance(engine.heard[-1], Leave), "the client says that it leaves")
        assert engine.clients == {}
    finally:
        engine.stop()


def test_without_an_engine_it_says_where_it_looked(tmp_path: Path) -> None:
    """As `status` does, with its exit status."""
    with pytest.raises(CommandError, match="nothing runs in") as failed:
        command(RuntimeFolder(tmp_path / "none"), "unmount_adapter", "a")
    assert failed.value.exit_code == EXIT_NOT_RUNNING
    status, told, error = _run(tmp_path, "flush")
    assert (status, told, error.startswith(f"engine-ctl: nothing runs in {tmp_path}; ")) == (EXIT_NOT_RUNNING, "", True)


def test_adapters_are_mounted_listed_and_unmounted(runtime_dir: Path, tmp_path: Path) -> None:
    """`engine-ctl adapter` against an engine process; its status names what is mounted."""
    model = build_random_model(tmp_path / "model", TINY_LLAMA)
    folder = build_adapter(tmp_path / "adapter", "llama", 1)
    words = ["-m", "engine", "--model", str(model), "--runtime-dir", str(runtime_dir), "--adapter", f"flag={folder}"]
    engine = subprocess.Popen([sys.executable, *words], start_new_session=True)
    try:
        assert _ready_adapters(runtime_dir) == ("flag",)
        assert _run(runtime_dir, "adapter", "add", "hot", str(folder)) == (0, "hot is mounted\n", "")
        assert _run(runtime_dir, "adapter", "list") == (0, "flag\nhot\n", "")
        assert _run(runtime_dir, "adapter", "remove", "flag") == (0, "flag is unmounted\n", "")
        status, _, error = _run(runtime_dir, "adapter", "remove", "flag")
        assert (status, error) == (1, "engine-ctl: adapter flag is not mounted; mounted: hot\n")
        status, _, error = _run(runtime_dir, "adapter", "add", "bad", str(tmp_path))
        assert (status, "adapter_config.json is missing" in error) == (1, True)
        assert _run(runtime_dir, "adapter", "list")[1] == "hot\n"
    finally:
        os.kill(engine.pid, signal.SIGTERM)
        assert engine.wait(30) == 0


def test_kept_prefixes_are_forgotten_on_demand(runtime_dir: Path, tmp_path: Path) -> None:
    """`engine-ctl flush` says what there was; the engine's status agrees, and the next request computes all."""
    model = build_random_model(tmp_path / "model", TINY_LLAMA)
    with running(model, open_runtime_folder(runtime_dir), "--model-id", "tiny") as engine:
        engine.client.greet()
        assert _run(runtime_dir, "flush") == (0, "prefixes forgotten: 0 (0.0 MB)\n", "")
        engine.client.submit("first", 60)
        engine.client.row("first")
        kept = _kept_once_told(engine)
        assert _run(runtime_dir, "flush") == (0, f"prefixes forgotten: 1 ({kept.size_bytes / 1e6:.1f} MB)\n", "")
        assert _run(runtime_dir, "flush") == (0, "prefixes forgotten: 0 (0.0 MB)\n", "")
        assert engine.watcher.until("ready").prefix.entries == 0


def _kept_once_told(engine: Engine) -> PrefixStatus:
    while not (prefix := engine.watcher.until("ready").prefix).entries:
        pass
    return prefix


def _ready_adapters(runtime_dir: Path) -> tuple[str, ...]:
    for _ in range(200):
        try:
            status = engine_in(RuntimeFolder(runtime_dir))
        except CommandError:
            continue
        if status.phase == "ready":
            return status.adapters
    raise AssertionError("the engine does not come up")


def _run(runtime_dir: Path, *words: str) -> tuple[int, str, str]:
    code = "from engine.ctl.app import main; main()"
    command_line = [sys.executable, "-c", code, *words, "--runtime-dir", str(runtime_dir)]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr
