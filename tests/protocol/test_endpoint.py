"""The runtime folder is ours alone and holds one engine; its sockets never block and never trust a peer."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol import endpoint
from protocol.codec import MAX_FRAME_BYTES
from protocol.endpoint import (
    MAX_SOCKET_PATH_BYTES,
    RuntimeFolder,
    bind_requests,
    bind_status,
    connect_requests,
    connect_status,
    default_runtime_path,
    lock_engine,
    open_runtime_folder,
)
from protocol.errors import ErrorCode, ProtocolError

_PATIENCE_MS = 20_000
_HOLD_LOCK = """
import sys
from pathlib import Path
from protocol.endpoint import lock_engine, open_runtime_folder
lock_engine(open_runtime_folder(Path(sys.argv[1])))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's path."""
    with tempfile.TemporaryDirectory(prefix="cv-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def folder(short_path: Path) -> RuntimeFolder:
    """An open runtime folder."""
    return open_runtime_folder(short_path / "run")


class Sockets:
    """Makes the four kinds of socket in one folder, and closes them."""

    def __init__(self, folder: RuntimeFolder) -> None:
        self._folder = folder
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []

    def router(self) -> "zmq.Socket[bytes]":
        """The engine's end of `requests`."""
        return self._kept(bind_requests(self._context, self._folder))

    def publisher(self) -> "zmq.Socket[bytes]":
        """The engine's end of `status`."""
        return self._kept(bind_status(self._context, self._folder))

    def dealer(self, identity: bytes) -> "zmq.Socket[bytes]":
        """A client's end of `requests`."""
        return connect_requests(self._kept(self._context.socket(zmq.DEALER)), self._folder, identity)

    def reader(self) -> "zmq.Socket[bytes]":
        """A client's end of `status`."""
        return connect_status(self._kept(self._context.socket(zmq.SUB)), self._folder)

    def monitor(self, watched: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
        """Tells of connections that come and go at a socket."""
        return self._kept(watched.get_monitor_socket())

    def close(self) -> None:
        """Ends all of them at once."""
        for socket in reversed(self._made):
            socket.close(linger=0)
        self._context.term()

    def _kept(self, socket: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
        self._made.append(socket)
        return socket


@pytest.fixture
def sockets(folder: RuntimeFolder) -> Iterator[Sockets]:
    """Sockets in `folder`, closed after the test."""
    made = Sockets(folder)
    yield made
    made.close()


def _received(socket: "zmq.Socket[bytes]") -> list[bytes]:
    assert socket.poll(_PATIENCE_MS), "nothing came"
    return socket.recv_multipart()


def _await_event(monitor: "zmq.Socket[bytes]", event: zmq.Event) -> None:
    while monitor.poll(_PATIENCE_MS):
        if recv_monitor_message(monitor)["event"] == event:
            return
    raise AssertionError(f"no {event} came")


# --- the folder -------------------------------------------------------------------------------


def test_a_missing_folder_is_made_for_its_owner_only(short_path: Path) -> None:
    """Mode 0700, whatever the umask lets through, parents too."""
    opened = open_runtime_folder(short_path / "a" / "b")
    assert opened.path == short_path / "a" / "b"
    assert opened.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_is_opened_again(folder: RuntimeFolder) -> None:
    """An engine's restart finds its folder."""
    assert open_runtime_folder(folder.path) == folder


def test_addresses_and_paths_lie_in_the_folder() -> None:
    """Two sockets, a state file, tokenizer copies."""
    folder = RuntimeFolder(Path("/run/x"))
    assert [folder.requests_address, folder.status_address] == ["ipc:///run/x/requests", "ipc:///run/x/status"]
    assert [folder.state_path, folder.tokenizers_path] == [Path("/run/x/state.json"), Path("/run/x/tokenizers")]


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o710, 0o701, 0o777])
def test_a_folder_open_to_others_is_refused(short_path: Path, mode: int) -> None:
    """Whoever may enter the folder may speak to the engine."""
    short_path.chmod(mode)
    with pytest.raises(ProtocolError, match=rf"open to other users \(mode {mode:04o}\); run chmod 700") as refused:
        open_runtime_folder(short_path)
    assert refused.value.code == ErrorCode.RUNTIME_FOLDER
    short_path.chmod(0o700)


def test_a_folder_of_another_user_is_refused(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names both users and the option."""
    owner = os.geteuid()
    monkeypatch.setattr(endpoint.os, "geteuid", lambda: owner + 1)
    complaint = f"belongs to user {owner}, not to {owner + 1}; choose another with --runtime-dir"
    with pytest.raises(ProtocolError, match=complaint):
        open_runtime_folder(short_path)


def test_a_file_in_its_place_is_refused(short_path: Path) -> None:
    """Neither a file, nor a folder under a file."""
    (short_path / "file").touch(mode=0o600)
    for path in (short_path / "file", short_path / "file" / "run"):
        with pytest.raises(ProtocolError, match=f"runtime folder {path} cannot be made"):
            open_runtime_folder(path)


def test_a_link_to_a_folder_is_refused(short_path: Path) -> None:
    """A link's target could be changed after the check."""
    (short_path / "real").mkdir(mode=0o700)
    (short_path / "link").symlink_to(short_path / "real")
    with pytest.raises(ProtocolError, match="is not a folder"):
        open_runtime_folder(short_path / "link")


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(short_path: Path) -> None:
    """The longest path that fits opens and can be bound; one byte more is refused with both numbers."""
    room = MAX_SOCKET_PATH_BYTES - len(os.fsencode(short_path)) - len("//requests")
    fits, too_long = short_path / ("ü" * (room // 2) + "x" * (room % 2)), short_path / ("x" * (room + 1))
    assert open_runtime_folder(fits).path == fits
    with pytest.raises(ProtocolError, match="socket path has 104 bytes, 103 are allowed; choose a shorter one"):
        open_runtime_folder(too_long)
    assert not too_long.exists()


def test_a_name_that_is_no_text_is_refused_before_anything_is_made(short_path: Path) -> None:
    """ZeroMQ takes addresses as text."""
    strange = short_path / os.fsdecode(b"a\xff")
    with pytest.raises(ProtocolError, match="its name is not UTF-8 text; choose another with --runtime-dir"):
        open_runtime_folder(strange)
    assert not strange.exists()


def test_a_relative_path_becomes_absolute(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client started elsewhere is told the same place."""
    monkeypatch.chdir(short_path)
    assert open_runtime_folder(Path("run")).path == short_path / "run"


def test_the_default_folder_is_the_users_own() -> None:
    """No settings are needed for one user's one engine."""
    assert default_runtime_path().name == "convoy"


# --- the lock ---------------------------------------------------------------------------------


def test_a_second_engine_is_refused_with_the_first_ones_pid(folder: RuntimeFolder) -> None:
    """The lock ends with its process, however it ends, and the next engine takes the folder."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(ProtocolError, match=rf"in use by another engine \(pid {holder.pid}\); stop it") as refused:
            lock_engine(folder)
        assert refused.value.code == ErrorCode.RUNTIME_FOLDER
        holder.send_signal(signal.SIGKILL)
    descriptor = lock_engine(folder)
    assert (folder.path / "engine.lock").read_text() == str(os.getpid())
    os.close(descriptor)


def test_a_stale_lock_file_does_not_hold(folder: RuntimeFolder) -> None:
    """A longer pid that a crash left is wiped, not overwritten in part."""
    (folder.path / "engine.lock").write_text("99999999999999")
    descriptor = lock_engine(folder)
    assert (folder.path / "engine.lock").read_text() == str(os.getpid())
    os.close(descriptor)


def test_the_lock_is_not_inherited(folder: RuntimeFolder) -> None:
    """A child that outlives the engine must not keep the folder."""
    descriptor = lock_engine(folder)
    assert os.get_inheritable(descriptor) is False
    os.close(descriptor)


def test_a_folder_that_takes_no_lock_is_refused(folder: RuntimeFolder) -> None:
    """F8: a read-only folder, or a lock that is no file, is one line and no traceback."""
    (folder.path / "engine.lock").mkdir()
    with pytest.raises(ProtocolError, match=r"does not take engine\.lock: Is a directory") as refused:
        lock_engine(folder)
    assert refused.value.code == ErrorCode.RUNTIME_FOLDER


def test_a_folder_that_takes_no_socket_is_refused(folder: RuntimeFolder) -> None:
    """F8: the context can still end, or the engine would hang instead of saying why."""
    (folder.path / "status").mkdir()
    with zmq.Context() as context, pytest.raises(ProtocolError, match="does not take ipc://") as refused:
        bind_status(context, folder)
    assert refused.value.code == ErrorCode.RUNTIME_FOLDER


# --- the sockets ------------------------------------------------------------------------------


def test_a_request_and_its_answer_travel(sockets: Sockets) -> None:
    """The engine knows a client by the identity it chose."""
    router = sockets.router()
    dealer = sockets.dealer(b"frontend-1/e1")
    dealer.send(b"hello")
    assert _received(router) == [b"frontend-1/e1", b"hello"]
    router.send_multipart([b"frontend-1/e1", b"welcome"], zmq.NOBLOCK)
    assert _received(dealer) == [b"welcome"]


def test_a_send_to_an_unknown_peer_raises_at_once(sockets: Sockets) -> None:
    """ROUTER_MANDATORY: no message is dropped without the engine's knowledge."""
    router = sockets.router()
    with pytest.raises(zmq.ZMQError) as refused:
        router.send_multipart([b"nobody", b"step"], zmq.NOBLOCK)
    assert refused.value.errno == zmq.EHOSTUNREACH


def test_a_send_to_a_gone_peer_raises_at_once(sockets: Sockets) -> None:
    """A closed client is as unknown as one that never was."""
    router = sockets.router()
    monitor = sockets.monitor(router)
    dealer = sockets.dealer(b"a")
    dealer.send(b"hello")
    assert _received(router) == [b"a", b"hello"]
    dealer.close(linger=0)
    _await_event(monitor, zmq.Event.DISCONNECTED)
    # The monitor may speak before the router's own thread has taken the end of the connection.
    with pytest.raises(zmq.ZMQError) as refused:
        _send_often(router, 10_000)
    assert refused.value.errno == zmq.EHOSTUNREACH


def test_a_send_to_a_full_peer_raises_at_once(sockets: Sockets) -> None:
    """A client that stops reading costs bounded memory and never blocks the engine."""
    router = sockets.router()
    dealer = sockets.dealer(b"a")
    dealer.send(b"hello")
    _received(router)
    with pytest.raises(zmq.Again):
        _send_often(router, 4 * endpoint.HIGH_WATER_MARK)


def _send_often(router: "zmq.Socket[bytes]", times: int) -> None:
    for _ in range(times):
        router.send_multipart([b"a", bytes(1_024)], zmq.NOBLOCK)


def test_an_oversize_frame_drops_only_its_sender(sockets: Sockets) -> None:
    """A frame at the limit passes; one byte more ends that connection, and the neighbour does not notice."""
    router = sockets.router()
    monitor = sockets.monitor(router)
    good = sockets.dealer(b"good")
    bad = sockets.dealer(b"bad")
    good.send(bytes(MAX_FRAME_BYTES))
    assert _received(router) == [b"good", bytes(MAX_FRAME_BYTES)]
    bad.send(bytes(MAX_FRAME_BYTES + 1))
    _await_event(monitor, zmq.Event.DISCONNECTED)
    good.send(b"still here")
    assert _received(router) == [b"good", b"still here"]


def test_a_fresh_socket_reaches_the_next_engine(folder: RuntimeFolder, sockets: Sockets) -> None:
    """Why one socket serves one epoch: the old one hands what it has queued to whoever binds next."""
    first_engine = Sockets(folder)
    router = first_engine.router()
    old = sockets.dealer(b"client/e1")
    monitor = sockets.monitor(old)
    old.send(b"hello")
    assert _received(router) == [b"client/e1", b"hello"]
    first_engine.close()
    _await_event(monitor, zmq.Event.DISCONNECTED)
    old.send(b"meant for e1")
    router = sockets.router()
    assert _received(router) == [b"client/e1", b"meant for e1"]
    new = sockets.dealer(b"client/e2")
    new.send(b"hello")
    assert _received(router) == [b"client/e2", b"hello"]


def test_status_reaches_every_reader_and_only_the_newest_is_kept(sockets: Sockets) -> None:
    """A reader that looks seldom sees the present, not a backlog."""
    publisher = sockets.publisher()
    readers = [sockets.reader() for _ in range(2)]
    newest = b"0"
    for reader in readers:
        # A publisher drops what nobody has subscribed to yet, so it repeats itself, as the engine does.
        while not reader.poll(10):
            newest = str(int(newest) + 1).encode()
            publisher.send(newest)
    publisher.send(b"last")
    for reader in readers:
        seen = b""
        while seen != b"last":
            seen = _received(reader)[0]
        assert reader.poll(0) == 0


def test_the_folder_is_left_to_its_owner_by_bound_sockets(folder: RuntimeFolder, sockets: Sockets) -> None:
    """Binding adds the two socket files and changes no mode."""
    sockets.router()
    sockets.publisher()
    assert sorted(path.name for path in folder.path.iterdir()) == ["requests", "status"]
    assert folder.path.stat().st_mode & 0o777 == 0o700
