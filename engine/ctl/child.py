"""One supervised process: its starts, its deaths, its back-off and its last words. Waits for nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from engine.ctl.terminal import tell
from protocol.errors import EXIT_BAD_SETTING

_READ_BYTES: Final = 65_536
# A line longer than this is passed on in pieces.
_LONGEST_LINE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a dead child starts again. deaths_before_proof: in a row, none of them after it had proved itself."""

    first_delay_s: float = 0.2
    longest_delay_s: float = 10.0
    healthy_after_s: float = 60.0
    deaths_before_proof: int = 5
    # From the request to stop until the end by force; longer than what children give their running work.
    grace_s: float = 35.0
    # Of an engine, which speaks four times a second. Longer than its own step limit: a stuck step is its own to end.
    silence_limit_s: float = 150.0


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """How a child is started. command: from the count of restarts to the arguments."""

    name: str
    command: Callable[[int], list[str]]
    passed_descriptors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended. cause: for people; is_clean: as one does that was asked to stop."""

    cause: str
    is_clean: bool
    is_hopeless: bool


class Child:
    """A plan with its present process, if any. clock: monotonic seconds."""

    def __init__(self, plan: ChildPlan, policy: RestartPolicy, clock: Callable[[], float]) -> None:
        self.plan = plan
        self.starts = 0
        self.due_s: float | None = clock()
        self.last_words = ""
        self.deaths_in_a_row = 0
        self._policy = policy
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._delay_s = policy.first_delay_s
        self._unfinished = b""
        self._is_silent = False
        self.is_stopped = False

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(0, self.starts - 1)

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return self._process.pid if self._process else None

    @property
    def output_descriptor(self) -> int | None:
        """Readable when the child said something or ended; None when it can say no more."""
        if self._process is None or self._process.stdout is None or self._is_silent:
            return None
        return self._process.stdout.fileno()

    def start(self) -> None:
        """Starts the process in a group of its own: a terminal's Ctrl-C reaches the supervisor only."""
        self.due_s = None
        self._is_silent = False
        self.is_stopped = False
        self._started_s = self._clock()
        self._process = subprocess.Popen(
            self.plan.command(self.starts),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=self.plan.passed_descriptors,
            process_group=0,
        )
        self.starts += 1
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def relay_output(self) -> None:
        """Passes on what the child has said so far, line by line, and keeps the last line."""
        descriptor = self.output_descriptor
        while descriptor is not None:
            try:
                piece = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not piece:
                self._is_silent = True
                return
            *lines, self._unfinished = (self._unfinished + piece).split(b"\n")
            for line in lines:
                self._relay(line)
            if len(self._unfinished) > _LONGEST_LINE_BYTES:
                self._flush()

    def find_death(self) -> Death | None:
        """Reaps the process if it has ended, and plans the next start."""
        if self._process is None:
            return None
        self._note_stops(self._process)
        if self._process.poll() is None:
            return None
        self.relay_output()
        self._flush()
        code = self._process.returncode
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        self._plan_restart()
        cause = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        # A child that has no handler yet when it is asked to stop ends by the signal.
        return Death(cause, is_clean=code in (0, -signal.SIGTERM), is_hopeless=code == EXIT_BAD_SETTING)

    def _note_stops(self, process: "subprocess.Popen[bytes]") -> None:
        """Whether SIGSTOP holds it at the moment: only its parent is told."""
        while process.returncode is None:
            try:
                pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self.is_stopped = os.WIFSTOPPED(status)
            else:
                process.returncode = os.waitstatus_to_exitcode(status)

    def prove(self) -> None:
        """The child does its work: earlier deaths no longer count as a crash loop."""
        self.deaths_in_a_row = 0

    def terminate(self) -> None:
        """Asks the process to stop, and plans no further start."""
        self.due_s = None
        if self._process:
            self._process.terminate()

    def show_threads(self) -> None:
        """Asks an engine to say where each of its threads stands, which it can do whatever they hold."""
        if self._process:
            self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Ends the process and whatever it has started."""
        if self._process:
            # macOS answers "not permitted" for a group whose only member has ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _plan_restart(self) -> None:
        now_s = self._clock()
        if now_s - self._started_s >= self._policy.healthy_after_s:
            self._delay_s = self._policy.first_delay_s
        self.due_s = now_s + self._delay_s
        self._delay_s = min(2 * self._delay_s, self._policy.longest_delay_s)
        self.deaths_in_a_row += 1

    def _flush(self) -> None:
        if self._unfinished:
            self._relay(self._unfinished)
            self._unfinished = b""

    def _relay(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self.last_words = text.strip() or self.last_words
        tell(text, sys.stderr)
