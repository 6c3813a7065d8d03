"""One ZeroMQ socket on the event loop: sends never block, and frames go to one reader, a callback.

Owns the socket and its place in the loop; knows nothing of what a frame says.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

# Frames handled before other callbacks of the loop get their turn.
_FRAMES_PER_TURN: Final = 32


class ChannelFullError(Exception):
    """The peer does not read: its queue is at the high-water mark."""


class Channel:
    """A connected socket whose frames are handed to `reader`, until close()."""

    def __init__(self, socket: "zmq.Socket[bytes]", reader: Callable[[bytes], None]) -> None:
        self._socket = socket
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._descriptor: int = socket.FD
        self._is_turn_planned = False
        self._loop.add_reader(self._descriptor, self._read)
        # The descriptor tells of changes only: frames that came before add_reader would lie unread.
        self._plan_turn()

    def send(self, frame: bytes) -> None:
        """Queues one frame. Raises ChannelFullError when the peer has stopped reading."""
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again as error:
            raise ChannelFullError from error
        # A send may have consumed the descriptor's one signal for frames that came meanwhile.
        self._plan_turn()

    def close(self, linger_ms: int = 0) -> None:
        """No frame reaches the reader after this. What is queued is dropped, or sent in the background for so long."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=linger_ms)

    def _plan_turn(self) -> None:
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self._loop.call_soon(self._planned_turn)

    def _planned_turn(self) -> None:
        self._is_turn_planned = False
        self._read()

    def _read(self) -> None:
        for _ in range(_FRAMES_PER_TURN):
            if self._socket.closed:
                return
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._reader(frame)
        self._plan_turn()
