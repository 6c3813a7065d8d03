"""Child processes of tests: started, waited for with a deadline, and always ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(arguments: Sequence[str], *, pass_fds: Sequence[int] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """`python <arguments>` in the repository; killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=pass_fds
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        assert process.stderr is not None
        process.stderr.close()


def ended(process: subprocess.Popen[bytes], limit_s: float = 20.0) -> tuple[int, str]:
    """Exit status and stderr, once the process has ended."""
    _, errors = process.communicate(timeout=limit_s)
    return process.returncode, errors.decode()


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to stop."""
    os.kill(process.pid, signal.SIGTERM)
