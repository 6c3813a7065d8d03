"""Keeps one engine and its frontends alive: starts, hears, restarts, gives up, stops.

Knows processes, signals and the status socket; knows nothing of command lines, models or HTTP.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import zmq

from engine.ctl.child import Child, ChildPlan, Death, RestartPolicy
from engine.ctl.failure import EXIT_FAILED
from engine.ctl.signals import SignalPipe
from engine.ctl.silence import Silence
from engine.ctl.terminal import say
from protocol.codec import decode_status
from protocol.endpoint import RuntimeFolder, connect_status
from protocol.errors import EXIT_BAD_SETTING, ProtocolError
from protocol.status import EngineStatus

EXIT_KILLED: Final = 130
# A lost SIGCHLD or a clock jump costs this much at most.
_LONGEST_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Observer:
    """Told at each change of pids or restarts (engine first), when a frontend serves, and when the stop begins."""

    on_change: Callable[[list[Child]], None]
    on_serving: Callable[[int, EngineStatus], None]
    on_stopping: Callable[[], None]


class Supervisor:
    """Runs in the main thread; `run` returns the exit status."""

    def __init__(
        self, folder: RuntimeFolder, plans: list[ChildPlan], observer: Observer, policy: RestartPolicy
    ) -> None:
        """plans: the engine's first, then one per frontend."""
        self._folder = folder
        self._observer = observer
        self._policy = policy
        self._clock = time.monotonic
        self._children = [Child(plan, policy, self._clock) for plan in plans]
        self._silence = Silence(policy.silence_limit_s)
        self._announced: set[int] = set()
        self._kill_at_s: float | None = None
        self._exit_status = 0

    def run(self) -> int:
        """Until everything has stopped: 0 after a clean stop, EXIT_BAD_SETTING or EXIT_FAILED after giving up."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            with SignalPipe() as signals, connect_status(context.socket(zmq.SUB), self._folder) as status_socket:
                while not self._is_over():
                    self._start_due()
                    self._wait(signals, status_socket)
                    self._hear_signals(signals)
                    self._hear_status(status_socket)
                    self._hear_children()
                    self._judge_silence()
                    self._kill_if_overdue()
        finally:
            for child in self._children:
                child.kill()
            context.term()
        return self._exit_status

    @property
    def _is_stopping(self) -> bool:
        return self._kill_at_s is not None

    def _is_over(self) -> bool:
        return self._is_stopping and all(child.pid is None for child in self._children)

    def _start_due(self) -> None:
        now_s = self._clock()
        due = [child for child in self._children if child.due_s is not None and child.due_s <= now_s]
        for child in due:
            child.start()
        if self._children[0] in due:
            self._silence.heard()
        if due:
            self._observer.on_change(self._children)

    def _wait(self, signals: SignalPipe, status_socket: "zmq.Socket[Any]") -> None:
        poller = zmq.Poller()
        poller.register(signals.descriptor, zmq.POLLIN)
        poller.register(status_socket, zmq.POLLIN)
        for child in self._children:
            if child.output_descriptor is not None:
                poller.register(child.output_descriptor, zmq.POLLIN)
        moments_s = [child.due_s for child in self._children if child.due_s is not None]
        if self._kill_at_s is not None:
            moments_s.append(self._kill_at_s)
        wait_s = min([_LONGEST_WAIT_S, *(moment_s - self._clock() for moment_s in moments_s)])
        began_s = self._clock()
        poller.poll(max(0, round(wait_s * 1_000) + 1))
        if self._children[0].pid is not None and not self._children[0].is_stopped:
            self._silence.waited(self._clock() - began_s)

    def _hear_signals(self, signals: SignalPipe) -> None:
        for heard in signals.stops_heard():
            if self._is_stopping:
                say(f"{heard.name} again: ending at once")
                self._kill(EXIT_KILLED)
            else:
                say(f"{heard.name}: stopping (once more to end at once)")
                self._stop(0)

    def _hear_status(self, status_socket: "zmq.Socket[Any]") -> None:
        try:
            frame = status_socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return
        self._silence.heard()
        try:
            status = decode_status(frame)
        except ProtocolError as error:
            say(f"the engine's status cannot be read: {error.message}")
            return
        engine = self._children[0]
        if status.pid != engine.pid or status.phase != "ready":
            return
        engine.prove()
        connected = {frontend.pid for frontend in status.frontends}
        for index, child in enumerate(self._children[1:]):
            if child.pid in connected:
                child.prove()
                if index not in self._announced:
                    self._announced.add(index)
                    self._observer.on_serving(index, status)

    def _hear_children(self) -> None:
        for child in self._children:
            child.relay_output()
            pid = child.pid
            death = child.find_death()
            if death is not None:
                self._on_death(child, pid, death)
                self._observer.on_change(self._children)

    def _judge_silence(self) -> None:
        """Ends an engine that lives and says nothing: what holds its interpreter's lock stops its own watchdog, too."""
        engine = self._children[0]
        if engine.pid is None or self._is_stopping:
            return
        match self._silence.verdict():
            case "warn":
                limit_s = self._silence.limit_s
                say(f"engine (pid {engine.pid}) has said nothing for {limit_s:g} s: ending it; this is where it stands")
                engine.show_threads()
            case "end":
                engine.kill()
            case None:
                pass

    def _on_death(self, child: Child, pid: int | None, death: Death) -> None:
        name = f"{child.plan.name} (pid {pid})"
        if self._is_stopping:
            child.due_s = None
            if not death.is_clean and self._exit_status == 0:
                say(f"{name} {death.cause} while stopping")
                self._exit_status = EXIT_FAILED
        elif death.is_hopeless:
            self._stop(EXIT_BAD_SETTING)
        elif child.deaths_in_a_row >= self._policy.deaths_before_proof:
            say(
                f"{name} {death.cause}; that is {child.deaths_in_a_row} deaths in a row without one useful moment: "
                f"giving up. Its last words: {child.last_words or 'none'}"
            )
            self._stop(EXIT_FAILED)
        else:
            delay_s = max(0.0, (child.due_s or 0.0) - self._clock())
            say(f"{name} {death.cause}; restart {child.starts} in {delay_s:.1f} s")

    def _stop(self, exit_status: int) -> None:
        self._exit_status = exit_status
        self._kill_at_s = self._clock() + self._policy.grace_s
        self._observer.on_stopping()
        for child in self._children:
            child.terminate()

    def _kill_if_overdue(self) -> None:
        if self._kill_at_s is not None and self._clock() >= self._kill_at_s and not self._is_over():
            late = ", ".join(child.plan.name for child in self._children if child.pid is not None)
            say(f"not stopped within {self._policy.grace_s:.0f} s, ended now: {late}")
            self._kill(EXIT_FAILED)

    def _kill(self, exit_status: int) -> None:
        self._exit_status = exit_status
        self._kill_at_s = self._clock() + self._policy.grace_s
        for child in self._children:
            child.kill()
