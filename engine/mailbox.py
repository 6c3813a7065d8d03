"""The engine's end of the `requests` socket: clients and their leases, frames in, messages out; it never blocks."""

import errno
import logging
from dataclasses import dataclass
from typing import Final, assert_never

import zmq

from engine.errors import EngineError
from engine.model.tokenizer_files import TokenizerFiles
from engine.prefix.store import Dropped
from protocol.codec import decode_to_engine, encode, submit_id_of
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    AnyToEngine,
    Cancel,
    ClientInfo,
    Control,
    ControlDone,
    Epoch,
    FetchTokenizer,
    Goodbye,
    Hello,
    Leave,
    ParserNames,
    Ping,
    Rejected,
    Step,
    Submit,
    SubmitId,
    Welcome,
)

log = logging.getLogger(__name__)

# One turn takes in at most this many frames, so that a flood cannot hold up the decode step.
MAX_FRAMES_PER_TURN: Final = 512


@dataclass(frozen=True, slots=True)
class SubmitHeard:
    """A Submit of a client that holds a lease."""

    client: bytes
    submit: Submit


@dataclass(frozen=True, slots=True)
class CancelHeard:
    """A Cancel of a client that holds a lease."""

    client: bytes
    cancel: Cancel


@dataclass(frozen=True, slots=True)
class ClientLost:
    """A client has left, is gone, full or silent: all of its rows must end. is_reachable: it may still be told so."""

    client: bytes
    is_reachable: bool


@dataclass(frozen=True, slots=True)
class ControlHeard:
    """An operator's command, from a client that holds a lease; answered by control_done()."""

    client: bytes
    control: Control


Heard = SubmitHeard | CancelHeard | ControlHeard | ClientLost


@dataclass(slots=True, eq=False)
class Client:
    """A client that holds a lease. heard_at: monotonic seconds. parsers: as it said last."""

    info: ClientInfo
    heard_at: float
    parsers: ParserNames | None = None


class Mailbox:
    """Answers Hello, Ping and FetchTokenizer itself; hands Submit, Cancel, Control and losses to the loop."""

    def __init__(
        self, socket: "zmq.Socket[bytes]", welcome: Welcome, tokenizer: TokenizerFiles, lease_s: float
    ) -> None:
        self._socket = socket
        self._welcome = welcome
        self._tokenizer = tokenizer
        self._lease_s = lease_s
        self._lost: list[ClientLost] = []
        self.clients: dict[bytes, Client] = {}
        self.malformed_frames = 0
        self.stale_messages = 0

    def hear(self, now: float, wait_ms: int) -> list[Heard]:
        """Everything that has arrived, in order; waits up to wait_ms for a first frame. now: monotonic seconds.

        Leases are judged only once the socket is empty: a ping may be waiting behind a long step.
        """
        heard: list[Heard] = []
        if wait_ms and not self._lost:
            self._socket.poll(wait_ms)
        for _ in range(MAX_FRAMES_PER_TURN):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                self._end_leases(now)
                break
            event = self._heard(parts, now)
            if event is not None:
                heard.append(event)
        lost, self._lost = self._lost, []
        return [*heard, *lost]

    def tell(self, client: bytes, message: AnyFromEngine) -> None:
        """Sends without waiting. A client that is gone or full, or cannot be told, is lost: the next `hear` says so."""
        try:
            frame = encode(message)
        except ProtocolError as error:
            log.error("frame.unsendable", extra={"client": client.hex(), "why": error.message})  # noqa: TRY400  # no fault of the encoder's
            self.lose(client)
            return
        self._send(client, frame)

    def tell_step(self, client: bytes, step: Step) -> None:
        """As tell(), but raises ProtocolError for rows that no frame holds: who they are, the caller can find out."""
        self._send(client, encode(step))

    def lose(self, client: bytes) -> None:
        """Ends the lease of a client that missed something. It is told so, and may say Hello again."""
        if self.clients.pop(client, None) is not None:
            self._lost.append(ClientLost(client, is_reachable=True))

    def _send(self, client: bytes, frame: bytes) -> None:
        try:
            self._socket.send_multipart([client, frame], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # A socket that is broken for all says so when it is heard.
            if self.clients.pop(client, None) is not None:
                reason = {zmq.EAGAIN: "full", errno.EHOSTUNREACH: "gone"}.get(error.errno or 0, str(error))
                log.warning("client.lost", extra={"client": client.hex(), "reason": reason})
                self._lost.append(ClientLost(client, is_reachable=False))

    def say_goodbye(self, message: str) -> None:
        """Tells every client that the engine shuts down."""
        for client in list(self.clients):
            self.tell(client, Goodbye(epoch=self._welcome.epoch, reason="shutting_down", message=message))

    def end_lease(self, client: bytes) -> None:
        """Tells a silent client that its rows are gone: if it wakes it must say Hello again."""
        self.tell(client, Goodbye(epoch=self._welcome.epoch, reason="lease_lost", message="silent for too long"))

    def reject(self, client: bytes, error: EngineError, id_: SubmitId | None) -> None:
        """Answers a Submit that will not run (id_), or a frame that was not understood (None)."""
        self.tell(
            client,
            Rejected(
                epoch=self._welcome.epoch,
                code=error.code,
                message=error.message,
                id=id_,
                param=error.param,
                retry_after_s=error.retry_after_s,
            ),
        )

    def control_done(self, heard: ControlHeard, error: str | None, dropped: Dropped | None = None) -> None:
        """Answers a command. error None: it is done."""
        entries, size_bytes = dropped or (0, 0)
        self.tell(
            heard.client,
            ControlDone(
                epoch=self._welcome.epoch,
                id=heard.control.id,
                error=error,
                dropped_entries=entries,
                dropped_bytes=size_bytes,
            ),
        )

    def _heard(self, parts: list[bytes], now: float) -> Heard | None:
        client, *frames = parts
        if len(frames) != 1:
            self._count_malformed(client, f"a message of {len(frames)} frames, expected 1", None)
            return None
        try:
            message = decode_to_engine(frames[0])
        except ProtocolError as error:
            self._count_malformed(client, error.message, submit_id_of(frames[0]))
            return None
        if message.epoch != self._welcome.epoch:
            self.stale_messages += 1
            return None
        if isinstance(message, Hello):
            self._greet(client, message, now)
            return None
        known = self.clients.get(client)
        if known is None:
            goodbye = Goodbye(epoch=self._welcome.epoch, reason="lease_lost", message="no lease: say Hello first")
            self.tell(client, goodbye)
            return None
        known.heard_at = now
        if isinstance(message, Ping):
            known.parsers = message.parsers
        return self._event(client, message)

    def _event(self, client: bytes, message: AnyToEngine) -> Heard | None:
        match message:
            case Submit():
                return SubmitHeard(client, message)
            case Cancel():
                return CancelHeard(client, message)
            case FetchTokenizer():
                self._send_tokenizer(client, message)
            case Control():
                return ControlHeard(client, message)
            case Leave():
                del self.clients[client]
                log.debug("client.left", extra={"client": client.hex()})
                return ClientLost(client, is_reachable=False)
            case Ping() | Hello():
                pass
            case _:
                assert_never(message)
        return None

    def _greet(self, client: bytes, hello: Hello, now: float) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            message = f"the engine speaks protocol version {PROTOCOL_VERSION}, the client {hello.protocol_version}"
            self.tell(client, Goodbye(epoch=self._welcome.epoch, reason="version_mismatch", message=message))
            return
        self.clients[client] = Client(hello.client, now)
        log.debug("client.hello", extra={"client": client.hex(), "client_name": hello.client.name})
        self.tell(client, self._welcome)

    def _send_tokenizer(self, client: bytes, fetch: FetchTokenizer) -> None:
        try:
            piece = self._tokenizer.chunk(fetch.name, fetch.offset_bytes)
            self.tell(client, piece.message(Epoch(self._welcome.epoch)))
        except EngineError as error:
            self.reject(client, error, None)

    def _count_malformed(self, client: bytes, why: str, id_: str | None) -> None:
        self.malformed_frames += 1
        log.warning("frame.malformed", extra={"client": client.hex(), "why": why})
        submit_id = None if id_ is None else SubmitId(id_)
        self.reject(client, EngineError(ErrorCode.MALFORMED_FRAME, why), submit_id)

    def _end_leases(self, now: float) -> None:
        for client, known in list(self.clients.items()):
            if now - known.heard_at <= self._lease_s:
                continue
            del self.clients[client]
            log.warning("client.lease_lost", extra={"client": client.hex(), "client_name": known.info.name})
            self._lost.append(ClientLost(client, is_reachable=True))
