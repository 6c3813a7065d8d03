"""Run as a process: an engine's outside without an engine. Publishes `ready`, listing the stand-in frontends."""

import os
import select
import signal
import sys
import threading
from pathlib import Path

import zmq

from protocol.codec import encode
from protocol.endpoint import RuntimeFolder, bind_status
from protocol.status import EngineStatus, FrontendStatus

PUBLISH_INTERVAL_S = 0.02


def main() -> None:
    """Arguments: the runtime folder, then optionally one of these.

    --deaf: ignores SIGTERM. --falls-silent, --stops: once a frontend is there it lives on without a word, or by
    SIGSTOP is held until somebody lets it go.
    """
    folder = RuntimeFolder(Path(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in sys.argv else lambda *_: sys.exit(0))
    socket = bind_status(zmq.Context(), folder)
    while True:
        pids = [int(path.suffix[1:]) for path in folder.path.glob("connected.*")]
        frontends = tuple(FrontendStatus(name="stand-in", pid=pid) for pid in pids)
        status = EngineStatus(epoch="e", protocol_version=1, pid=os.getpid(), phase="ready", frontends=frontends)
        socket.send(encode(status))
        if pids and "--falls-silent" in sys.argv:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            threading.Event().wait()
        if pids and "--stops" in sys.argv:
            sys.argv.remove("--stops")
            os.kill(os.getpid(), signal.SIGSTOP)
        select.select([], [], [], PUBLISH_INTERVAL_S)


if __name__ == "__main__":
    main()
