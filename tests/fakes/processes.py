"""Child processes of tests: started, waited for with a deadline, and always ended."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Child:
    """A running process, and the file its stderr goes to: a pipe that nobody reads would stop it."""

    process: "subprocess.Popen[bytes]"
    errors: BinaryIO

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def said(self) -> str:
        """What it wrote to stderr so far."""
        self.errors.seek(0)
        return self.errors.read().decode()

    def terminate(self) -> None:
        """Asks it to stop."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without a word."""
        self.process.kill()

    def ended(self, limit_s: float = 60.0) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(limit_s)


@contextmanager
def child(arguments: Sequence[str], *, pass_fds: Sequence[int] = ()) -> Iterator[Child]:
    """`python <arguments>` in the repository; killed at the end of the block if it still runs."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stderr=errors, stdout=subprocess.DEVNULL, pass_fds=pass_fds
        )
        try:
            yield Child(process, errors)
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
