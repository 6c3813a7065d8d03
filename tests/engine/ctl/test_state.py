"""The supervisor's lock and state file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.ctl.failure import CommandError
from engine.ctl.state import FrontendState, SupervisorState, lock_supervisor, read_state, remove_state, write_state
from protocol.endpoint import RuntimeFolder


def state_of(pid: int) -> SupervisorState:
    """A state with one frontend."""
    frontend = FrontendState(port=8080, url="http://127.0.0.1:8080", pid=12, restarts=3)
    return SupervisorState(pid=pid, model_id="m", model_path="/m", engine_restarts=2, frontends=(frontend,))


def test_a_second_supervisor_is_refused_with_the_firsts_pid(tmp_path: Path) -> None:
    """Two supervisors on one folder would fight for the engine."""
    folder = RuntimeFolder(tmp_path)
    descriptor = lock_supervisor(folder)
    with pytest.raises(CommandError, match=rf"in use by another engine-ctl serve \(pid {os.getpid()}\)"):
        lock_supervisor(folder)
    os.close(descriptor)
    os.close(lock_supervisor(folder))


def test_a_folder_that_takes_no_lock_is_refused(tmp_path: Path) -> None:
    """F8: a read-only folder is one line and no traceback."""
    (tmp_path / "supervisor.lock").mkdir()
    with pytest.raises(CommandError, match=r"does not take supervisor\.lock: Is a directory"):
        lock_supervisor(RuntimeFolder(tmp_path))


def test_state_survives_the_file(tmp_path: Path) -> None:
    """What is written is read, and removing it is idempotent."""
    folder = RuntimeFolder(tmp_path)
    assert read_state(folder) is None
    write_state(folder, state_of(os.getpid()))
    assert read_state(folder) == state_of(os.getpid())
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    remove_state(folder)
    remove_state(folder)
    assert read_state(folder) is None


def test_a_dead_supervisors_state_does_not_count(tmp_path: Path) -> None:
    """After kill -9 of the supervisor its file still lies there."""
    folder = RuntimeFolder(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    write_state(folder, state_of(process.pid))
    assert read_state(folder) is None


def test_a_damaged_state_file_does_not_count(tmp_path: Path) -> None:
    """Whatever is in the file, `status` answers."""
    (tmp_path / "state.json").write_text("{")
    assert read_state(RuntimeFolder(tmp_path)) is None
