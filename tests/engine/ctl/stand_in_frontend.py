"""Run as a process: a frontend's outside. Says that it is connected by a file named after its pid, then waits."""

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Argument: the runtime folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (Path(sys.argv[1]) / f"connected.{os.getpid()}").touch()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
