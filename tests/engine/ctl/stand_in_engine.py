"""Run as a process: an engine's outside without an engine. Publishes `ready`, listing the stand-in frontends."""

import os
import select
import signal
import sys
from pathlib import Path

import zmq

from protocol.codec import encode
from protocol.endpoint import RuntimeFolder, bind_status
from protocol.status import EngineStatus, FrontendStatus

PUBLISH_INTERVAL_S = 0.02


def main() -> None:
    """Arguments: the runtime folder, then optionally --deaf (ignores SIGTERM)."""
    folder = RuntimeFolder(Path(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in sys.argv else lambda *_: sys.exit(0))
    socket = bind_status(zmq.Context(), folder)
    while True:
        pids = [int(path.suffix[1:]) for path in folder.path.glob("connected.*")]
        frontends = tuple(FrontendStatus(name="stand-in", pid=pid) for pid in pids)
        status = EngineStatus(epoch="e", protocol_version=1, pid=os.getpid(), phase="ready", frontends=frontends)
        socket.send(encode(status))
        select.select([], [], [], PUBLISH_INTERVAL_S)


if __name__ == "__main__":
    main()
