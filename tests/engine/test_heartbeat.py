"""The thread that pushes status and ends a stuck engine."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import zmq

from engine.heartbeat import EXIT_STUCK, PARENT_PID, Heartbeat, HeartbeatSettings, TurnWatch
from engine.status import StatusBoard
from protocol.codec import decode_status
from protocol.endpoint import RuntimeFolder, open_runtime_folder
from protocol.messages import Epoch
from protocol.status import EngineStatus

# How long a test waits for what must come; far above what it takes.
PATIENCE_MS = 20_000


@pytest.fixture
def folder() -> Iterator[RuntimeFolder]:
    """A short path: a socket's may have 103 bytes only."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cv") as path:
        yield open_runtime_folder(Path(path) / "r")


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard(Epoch("e1"), restarts=0)


class Listener:
    """A subscriber that gets every frame, in order."""

    def __init__(self, context: "zmq.Context[Any]", folder: RuntimeFolder) -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(folder.status_address)

    def next(self) -> EngineStatus:
        assert self._socket.poll(PATIENCE_MS), "no status came"
        return decode_status(self._socket.recv())

    def until(self, phase: str) -> EngineStatus:
        while (status := self.next()).phase != phase:
            pass
        return status

    def waiting(self) -> list[EngineStatus]:
        """All that has come already."""
        statuses: list[EngineStatus] = []
        while self._socket.poll(0):
            statuses.append(decode_status(self._socket.recv()))
        return statuses

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening(folder: RuntimeFolder) -> Iterator[Listener]:
    with zmq.Context() as context:
        listener = Listener(context, folder)
        try:
            yield listener
        finally:
            listener.close()


def quick(**changes: Any) -> HeartbeatSettings:
    return HeartbeatSettings(**{"step_limit_s": 1_000.0, "interval_s": 0.01} | changes)


def beat_until(error: BaseException, listener: Listener, folder: RuntimeFolder, board: StatusBoard) -> None:
    """A body that ends by an error after its first beat."""
    with Heartbeat(folder, board, threading.Event(), quick()):
        listener.next()
        raise error


def test_status_is_pushed_again_and_again(folder: RuntimeFolder, board: StatusBoard) -> None:
    """A listener gets pictures without asking, and sees a change of phase."""
    with listening(folder) as listener, Heartbeat(folder, board, threading.Event(), quick()):
        first, second = listener.next(), listener.next()
        board.set_phase("loading", "weights")
        status = listener.until("loading")
    assert first.epoch == "e1"
    assert second.uptime_s > first.uptime_s
    assert status.phase_detail == "weights"


def test_status_is_pushed_while_the_device_computes(folder: RuntimeFolder, board: StatusBoard) -> None:
    """Statuses leave while the main thread waits for one evaluation; on a machine too quick to see it, a longer one."""
    sines = 60
    pushed: list[EngineStatus] = []
    with listening(folder) as listener, Heartbeat(folder, board, threading.Event(), quick()):
        while len(pushed) < 3:
            assert sines < 60 << 7, "no status leaves during an evaluation"
            values = mx.full((300_000,), 0.5)
            for _ in range(sines):
                values = mx.sin(values)
            listener.waiting()
            began_s = listener.next().uptime_s
            mx.eval(values)
            ended_s = board.status().uptime_s
            pushed = []
            while (status := listener.next()).uptime_s < ended_s:
                pushed.append(status)
            sines *= 2
    assert began_s < pushed[0].uptime_s < pushed[-1].uptime_s < ended_s


def test_the_last_status_says_stopping(folder: RuntimeFolder, board: StatusBoard) -> None:
    """Closing pushes one more picture and frees the address at once."""
    with listening(folder) as listener:
        with Heartbeat(folder, board, threading.Event(), quick()):
            listener.next()
        assert listener.until("stopping").phase_detail == ""
    with Heartbeat(folder, board, threading.Event(), quick()), listening(folder) as listener:
        listener.next()


def test_the_last_status_names_the_error(folder: RuntimeFolder, board: StatusBoard) -> None:
    """An engine that could not start says why, on one line."""
    with listening(folder) as listener:
        with pytest.raises(ValueError, match="first"):
            beat_until(ValueError("first\nsecond"), listener, folder, board)
        assert listener.until("failed").phase_detail == "first second"


def test_a_stop_by_signal_is_no_failure(folder: RuntimeFolder, board: StatusBoard) -> None:
    """What is no Exception is how an engine is interrupted."""
    with listening(folder) as listener:
        with pytest.raises(KeyboardInterrupt):
            beat_until(KeyboardInterrupt(), listener, folder, board)
        assert listener.until("stopping").phase == "stopping"


def test_a_stuck_turn_ends_the_process(
    folder: RuntimeFolder, board: StatusBoard, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the limit: a CRITICAL line, a last status `failed`, exit status 70."""
    ended: list[int] = []
    settings = quick(step_limit_s=0.1, end_process=ended.append)
    with listening(folder) as listener:
        heartbeat = Heartbeat(folder, board, threading.Event(), settings)
        listener.next()
        board.turn_began()
        status = listener.until("failed")
        heartbeat.close()
    assert ended == [EXIT_STUCK]
    assert status.step.age_ms > 100
    assert [(record.levelname, record.message) for record in caplog.records] == [("CRITICAL", "engine.stuck")]


def test_a_long_wait_is_not_a_stuck_turn(folder: RuntimeFolder, board: StatusBoard) -> None:
    """An idle engine has no turn and lives, whatever the limit."""
    ended: list[int] = []
    settings = quick(step_limit_s=0.000_1, end_process=ended.append)
    with listening(folder) as listener, Heartbeat(folder, board, threading.Event(), settings):
        for _ in range(5):
            listener.next()
    assert ended == []


@pytest.mark.parametrize(
    ("ages_s", "awake_s"),
    [
        ([1.0, 2.0, 3.0], 3.0),  # one turn, beat by beat
        ([1.0, 3_601.0, 3_602.0], 7.0),  # held for an hour within it
        ([900.0, 901.0], 6.0),  # held just when it began
        ([4.0, 0.0, 1.0], 1.0),  # idle in between
        ([4.0, 0.5, 1.0], 1.0),  # another turn
        ([*range(0, 200, 4)], 196.0),  # late beats of a busy machine count in full
    ],
)
def test_a_turn_does_not_age_while_the_process_is_held(ages_s: list[float], awake_s: float) -> None:
    """An engine that goes on after SIGSTOP, or on a machine that was paused, is not stuck."""
    watch = TurnWatch()
    assert [watch.awake_s(age_s) for age_s in ages_s][-1] == awake_s


def test_a_stuck_engine_really_exits(folder: RuntimeFolder) -> None:
    """The whole process goes, though its main thread never returns."""
    script = (
        "import threading\n"
        "from pathlib import Path\n"
        "from engine.heartbeat import Heartbeat, HeartbeatSettings\n"
        "from engine.status import StatusBoard\n"
        "from protocol.endpoint import open_runtime_folder\n"
        "from protocol.logs import setup_logging\n"
        "setup_logging('info')\n"
        "board = StatusBoard('e', 0)\n"
        f"folder = open_runtime_folder(Path({str(folder.path)!r}))\n"
        "Heartbeat(folder, board, threading.Event(), HeartbeatSettings(step_limit_s=0.05, interval_s=0.01))\n"
        "board.turn_began()\n"
        "threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_STUCK
    assert "CRITICAL engine.heartbeat engine.stuck turn_age_s=" in done.stderr


@pytest.mark.parametrize(("exit_with_parent", "expected"), [(True, True), (False, False)])
def test_a_lost_parent_stops_the_engine_if_wanted(
    folder: RuntimeFolder, board: StatusBoard, exit_with_parent: bool, expected: bool
) -> None:
    """`stop` is set once the parent's pid is another one."""
    parents = iter([PARENT_PID, PARENT_PID])
    stop = threading.Event()
    settings = quick(exit_with_parent=exit_with_parent, parent_pid=lambda: next(parents, 1))
    with listening(folder) as listener, Heartbeat(folder, board, stop, settings):
        listener.next()
        if expected:
            assert stop.wait(PATIENCE_MS / 1_000)
        else:
            for _ in range(5):
                listener.next()
    assert stop.is_set() is expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_that_dies_takes_the_process_along(folder: RuntimeFolder, board: StatusBoard) -> None:
    """A status that cannot be encoded ends the thread, and with it the engine, which has no watchdog left."""
    ended = threading.Event()
    statuses: list[int] = []

    def end_process(status: int) -> None:
        statuses.append(status)
        ended.set()

    board.set_phase("loading", "\udcff")
    heartbeat = Heartbeat(folder, board, threading.Event(), quick(end_process=end_process))
    assert ended.wait(PATIENCE_MS / 1_000)
    heartbeat.close()
    assert statuses == [EXIT_STUCK]
