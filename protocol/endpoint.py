"""The runtime folder and the sockets in it: who may bind, who connects, under which limits."""

import fcntl
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import platformdirs
import zmq

from protocol.codec import MAX_FRAME_BYTES
from protocol.errors import ErrorCode, ProtocolError
from protocol.settings import is_text

# macOS allows 103 bytes in a socket path, Linux 107.
MAX_SOCKET_PATH_BYTES: Final = 103
# A peer that has this many undelivered messages is full, and treated as gone.
HIGH_WATER_MARK: Final = 4_096
PING_INTERVAL_S: Final = 1.0
LEASE_S: Final = 15.0

AnySocket = TypeVar("AnySocket", bound="zmq.Socket[Any]")


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """One engine's meeting place: sockets, lock, state file, the clients' tokenizer copies and stored responses."""

    path: Path

    @property
    def requests_address(self) -> str:
        """Address of the ROUTER/DEALER socket."""
        return f"ipc://{self.path / 'requests'}"

    @property
    def status_address(self) -> str:
        """Address of the PUB/SUB socket."""
        return f"ipc://{self.path / 'status'}"

    @property
    def state_path(self) -> Path:
        """The supervisor's small state file."""
        return self.path / "state.json"

    @property
    def tokenizers_path(self) -> Path:
        """Where clients keep tokenizer files, one folder per hash."""
        return self.path / "tokenizers"

    @property
    def responses_path(self) -> Path:
        """Where frontends keep responses that a client may go on from."""
        return self.path / "responses"


def default_runtime_path() -> Path:
    """The user's own folder for sockets."""
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR it falls back to a folder under the temporary one, which suits us as well.
        warnings.simplefilter("ignore", platformdirs.RuntimeDirWarning)
        return Path(platformdirs.user_runtime_dir("convoy"))


def open_runtime_folder(path: Path) -> RuntimeFolder:
    """Makes the folder with mode 0700 if missing. Raises ProtocolError(RUNTIME_FOLDER) if it is not ours alone."""
    path = path.expanduser().absolute()
    if not is_text(str(path)):
        raise _refused(path, "its name is not UTF-8 text; choose another with --runtime-dir")
    longest = len(os.fsencode(path / "requests"))
    if longest > MAX_SOCKET_PATH_BYTES:
        raise _refused(
            path,
            f"its socket path has {longest} bytes, {MAX_SOCKET_PATH_BYTES} are allowed; choose a shorter one",
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise _refused(path, f"cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "is not a folder")
    if found.st_uid != os.geteuid():
        raise _refused(
            path, f"belongs to user {found.st_uid}, not to {os.geteuid()}; choose another with --runtime-dir"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise _refused(path, f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); run chmod 700 on it")
    return RuntimeFolder(path)


def lock_engine(folder: RuntimeFolder) -> int:
    """Takes the folder for this engine until the process ends, and returns the lock's descriptor.

    A second engine would silently steal the socket paths. Raises ProtocolError(RUNTIME_FOLDER) with the holder's pid.
    """
    try:
        descriptor = os.open(folder.path / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _refused(folder.path, f"does not take engine.lock: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise _refused(
            folder.path, f"is in use by another engine (pid {holder}); stop it, or choose another with --runtime-dir"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def bind_requests(context: "zmq.Context[zmq.Socket[bytes]]", folder: RuntimeFolder) -> "zmq.Socket[bytes]":
    """The engine's ROUTER. A send to a peer that is gone or full raises at once and never blocks."""
    socket = context.socket(zmq.ROUTER)
    _limit(socket)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return _bound(socket, folder, folder.requests_address)


def bind_status(context: "zmq.Context[zmq.Socket[bytes]]", folder: RuntimeFolder) -> "zmq.Socket[bytes]":
    """The engine's PUB."""
    socket = context.socket(zmq.PUB)
    _limit(socket)
    return _bound(socket, folder, folder.status_address)


def remove_sockets(folder: RuntimeFolder) -> None:
    """Takes the socket files away at the end, which ZeroMQ does not; only the holder of the lock may."""
    for name in ("requests", "status"):
        (folder.path / name).unlink(missing_ok=True)


def connect_requests(socket: AnySocket, folder: RuntimeFolder, identity: bytes) -> AnySocket:
    """Connects a client's fresh DEALER. One socket serves one epoch: it would hand what it has queued to the next."""
    _limit(socket)
    socket.setsockopt(zmq.IDENTITY, identity)
    socket.connect(folder.requests_address)
    return socket


def connect_status(socket: AnySocket, folder: RuntimeFolder) -> AnySocket:
    """Connects a client's SUB to every status frame; only the newest is kept."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.CONFLATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(folder.status_address)
    return socket


def _bound(socket: AnySocket, folder: RuntimeFolder, address: str) -> AnySocket:
    """Raises ProtocolError(RUNTIME_FOLDER). A socket left open would keep its context from ending."""
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        socket.close()
        raise _refused(folder.path, f"does not take {address}: {error.strerror}") from error
    return socket


def _limit(socket: "zmq.Socket[Any]") -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)


def _refused(path: Path, why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.RUNTIME_FOLDER, f"runtime folder {path} {why}")
