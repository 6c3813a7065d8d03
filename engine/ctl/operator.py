"""An operator's command to the running engine: one Control over the wire, and its answer.

Owns the short-lived client; what the commands do is the engine's.
"""

import os
import secrets
import time
from typing import Final

import zmq

from engine.ctl.failure import CommandError, not_running
from engine.ctl.status_view import hear_engine
from protocol.codec import decode_from_engine, encode
from protocol.endpoint import RuntimeFolder, connect_requests
from protocol.errors import ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    ClientInfo,
    Control,
    ControlCommand,
    ControlDone,
    Goodbye,
    Hello,
    Leave,
)
from protocol.status import EngineStatus

# An adapter is read between two steps; a large one from a slow disk takes a while.
ANSWER_LIMIT_S: Final = 120.0
_LAST_WORD_MS: Final = 500


def engine_in(folder: RuntimeFolder) -> EngineStatus:
    """The running engine's status. Raises CommandError when there is none."""
    status = hear_engine(folder) if folder.path.is_dir() else None
    if status is None:
        raise not_running(folder.path)
    return status


def command(
    folder: RuntimeFolder, name: ControlCommand, argument: str = "", limit_s: float = ANSWER_LIMIT_S
) -> ControlDone:
    """Has the engine carry a command out. Raises CommandError: what the engine says, or that it does not answer."""
    status = engine_in(folder)
    if status.protocol_version != PROTOCOL_VERSION:
        raise CommandError(
            f"the engine speaks protocol {status.protocol_version}, this engine-ctl {PROTOCOL_VERSION}; "
            "run both from one installation"
        )
    control = Control(epoch=status.epoch, id=secrets.token_hex(8), command=name, argument=argument)
    info = ClientInfo(name="engine-ctl", pid=os.getpid())
    hello = Hello(epoch=status.epoch, protocol_version=PROTOCOL_VERSION, client=info)
    with zmq.Context() as context:
        identity = f"engine-ctl-{control.id}".encode()
        with connect_requests(context.socket(zmq.DEALER), folder, identity) as socket:
            socket.send(encode(hello))
            socket.send(encode(control))
            # Its last word must be sent, and is not waited for where nobody takes it.
            socket.setsockopt(zmq.LINGER, _LAST_WORD_MS)
            try:
                done = _answer(socket, control.id, limit_s)
            finally:
                socket.send(encode(Leave(epoch=status.epoch)), zmq.NOBLOCK)
    if done.error is not None:
        raise CommandError(done.error)
    return done


def _answer(socket: "zmq.Socket[bytes]", id_: str, limit_s: float) -> ControlDone:
    ends_at_s = time.monotonic() + limit_s
    while (left_s := ends_at_s - time.monotonic()) > 0:
        if not socket.poll(int(left_s * 1_000) + 1):
            break
        try:
            message = decode_from_engine(socket.recv())
        except ProtocolError as error:
            raise CommandError(f"the engine's answer is not understood: {error.message}") from error
        match message:
            case ControlDone(id=answered) if answered == id_:
                return message
            case Goodbye():
                raise CommandError(f"the engine ended the connection: {message.message or message.reason}")
            case _:
                continue
    raise CommandError(f"the engine has not answered within {limit_s:.0f} s")
