"""The thread that pushes status, ends a process whose device step is stuck, and notices a lost parent.

Owns the PUB socket, with a ZeroMQ context of its own so that closing it waits for nobody. Touches no MLX.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import zmq

from engine.status import StatusBoard
from protocol.codec import encode
from protocol.endpoint import RuntimeFolder, bind_status
from protocol.errors import ProtocolError
from protocol.status import Phase

BEAT_INTERVAL_S: Final = 0.25
# EX_SOFTWARE: the process was ended from inside; a supervisor starts it again.
EXIT_STUCK: Final = 70
# The last status leaves in the background: how long closing the socket waits for it.
_LINGER_MS: Final = 500
_DETAIL_CHARACTERS: Final = 500
# A beat that comes later than this found its process held, by SIGSTOP or with its machine, not its device stuck.
_LONGEST_BEAT_S: Final = 5.0

# Read at import: a parent that dies while the engine still imports MLX would otherwise be missed.
PARENT_PID: Final = os.getppid()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    """step_limit_s: age of a turn that ends the process. exit_with_parent: set `stop` when the parent changes."""

    step_limit_s: float
    exit_with_parent: bool = False
    interval_s: float = BEAT_INTERVAL_S
    end_process: Callable[[int], Any] = field(default=os._exit)
    first_parent: int = PARENT_PID
    parent_pid: Callable[[], int] = field(default=os.getppid)


class TurnWatch:
    """How old the running turn is, without the time for which the whole process was held."""

    def __init__(self) -> None:
        self._seen_s = 0.0
        self._awake_s = 0.0

    def awake_s(self, age_s: float) -> float:
        """To be asked at each beat. age_s: by the clock, 0 when nothing runs."""
        before_s = self._awake_s if age_s >= self._seen_s else 0.0
        passed_s = age_s - self._seen_s if age_s >= self._seen_s else age_s
        self._seen_s = age_s
        self._awake_s = before_s + min(passed_s, _LONGEST_BEAT_S)
        return self._awake_s


class Heartbeat:
    """Beats from construction to close(). stop: set when the parent is gone, as by a signal to stop.

    As a context manager its last status says `failed`, with the error, when an exception ended the body.
    """

    def __init__(
        self, folder: RuntimeFolder, board: StatusBoard, stop: threading.Event, settings: HeartbeatSettings
    ) -> None:
        self._board = board
        self._stop = stop
        self._settings = settings
        self._closing = threading.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        try:
            self._socket = bind_status(self._context, folder)
        except ProtocolError:
            self._context.term()
            raise
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.close("failed", " ".join(f"{error}".split())[:_DETAIL_CHARACTERS] or type(error).__name__)
        else:
            self.close()

    def close(self, phase: Phase = "stopping", detail: str = "") -> None:
        """Pushes one last status with this phase, ends the thread and releases the socket."""
        self._board.set_phase(phase, detail)
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        """Beats until the end. An engine whose heartbeat has died has no watchdog, so it must not live on."""
        has_ended_well = False
        try:
            self._beat()
            has_ended_well = True
        finally:
            if not has_ended_well:
                log.critical("heartbeat.died", extra={"why": repr(sys.exc_info()[1])})
                self._release()
                self._settings.end_process(EXIT_STUCK)

    def _beat(self) -> None:
        """At a fixed interval; the wait is for the end, not for time to pass."""
        watch = TurnWatch()
        while not self._closing.wait(self._settings.interval_s):
            self._push()
            age_s = watch.awake_s(self._board.turn_age_s)
            if age_s > self._settings.step_limit_s:
                self._end_stuck(age_s)
                return
            self._watch_parent()
        self._push()
        self._release()

    def _push(self) -> None:
        self._socket.send(encode(self._board.status()))

    def _release(self) -> None:
        self._socket.close()
        self._context.term()

    def _end_stuck(self, age_s: float) -> None:
        log.critical("engine.stuck", extra={"turn_age_s": age_s, "step_limit_s": self._settings.step_limit_s})
        self._board.set_phase("failed", f"a device step took longer than {self._settings.step_limit_s:g} s")
        self._push()
        self._release()
        self._settings.end_process(EXIT_STUCK)

    def _watch_parent(self) -> None:
        settings = self._settings
        if settings.exit_with_parent and not self._stop.is_set() and settings.parent_pid() != settings.first_parent:
            log.warning("engine.parent_gone", extra={"parent": settings.first_parent})
            self._stop.set()
