"""The supervisor's claim on a runtime folder: its lock, and the small state file that `status` reads."""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from engine.ctl.failure import CommandError
from protocol.endpoint import RuntimeFolder

_LOCK_NAME: Final = "supervisor.lock"


class FrontendState(msgspec.Struct, frozen=True, kw_only=True):
    """One supervised frontend. pid None: waiting for its restart."""

    port: int
    url: str
    pid: int | None = None
    restarts: int = 0


class SupervisorState(msgspec.Struct, frozen=True, kw_only=True):
    """What only the supervisor knows; rewritten at each change of it."""

    pid: int
    model_id: str
    model_path: str
    engine_pid: int | None = None
    engine_restarts: int = 0
    frontends: tuple[FrontendState, ...] = ()


def lock_supervisor(folder: RuntimeFolder) -> int:
    """Takes the folder for this supervisor until the returned descriptor is closed.

    Raises CommandError with the holder's pid.
    """
    try:
        descriptor = os.open(folder.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"runtime folder {folder.path} does not take {_LOCK_NAME}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise CommandError(
            f"runtime folder {folder.path} is in use by another engine-ctl serve (pid {holder}); "
            "stop it, or choose another with --runtime-dir"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def write_state(folder: RuntimeFolder, state: SupervisorState) -> None:
    """Replaces the file in one step: a reader sees the old or the new one, never half."""
    descriptor, name = tempfile.mkstemp(prefix=".state.", dir=folder.path)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(state))
    Path(name).replace(folder.state_path)


def read_state(folder: RuntimeFolder) -> SupervisorState | None:
    """The state of a living supervisor; None when there is none."""
    try:
        state = msgspec.json.decode(folder.state_path.read_bytes(), type=SupervisorState)
        os.kill(state.pid, 0)
    except (FileNotFoundError, ProcessLookupError, msgspec.DecodeError):
        return None
    return state


def remove_state(folder: RuntimeFolder) -> None:
    """Says that nothing is supervised any more."""
    folder.state_path.unlink(missing_ok=True)
