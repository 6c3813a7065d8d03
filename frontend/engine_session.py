"""One connection to one engine epoch: a fresh DEALER, its rows, and its end.

Owns the socket and the rows submitted through it; it is made and replaced by the EngineClient.
"""

import asyncio
import itertools
import logging
import os
import secrets
import time
from collections import Counter
from typing import Final, assert_never

import zmq

from frontend.channel import Channel, ChannelFullError
from frontend.metrics import Metrics
from frontend.stream import RowFailure, RowMailbox
from protocol import codec
from protocol.endpoint import RuntimeFolder, connect_requests
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    AnyToEngine,
    Cancel,
    CancelReason,
    ClientInfo,
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
    SubmitId,
    TokenizerChunk,
    Welcome,
)

log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 2.0
# Handlers woken per turn of the event loop: a probe waits for the writes of these, not for those of 64 rows.
_HANDLERS_PER_TURN: Final = 8
# The kernel takes a local message at once; an engine that is gone takes none.
_LAST_WORD_MS: Final = 200


class SessionLostError(Exception):
    """The session ended while something waited for the engine's answer."""


class EngineSession:
    """Speaks to one engine epoch. Every row ends once: by the engine, or with lose()."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", folder: RuntimeFolder, epoch: Epoch, metrics: Metrics
    ) -> None:
        self.epoch = epoch
        self._metrics = metrics
        self.failure: RowFailure | None = None
        self.cancels_sent: Counter[CancelReason] = Counter()
        self._rows: dict[SubmitId, RowMailbox] = {}
        self._to_ring: dict[SubmitId, RowMailbox] = {}
        self._lost = asyncio.Event()
        self._answer: asyncio.Future[Welcome | TokenizerChunk] | None = None
        identity = f"{os.getpid()}-{secrets.token_hex(4)}-{epoch}".encode()[:255]
        self._channel = Channel(connect_requests(context.socket(zmq.DEALER), folder, identity), self._hear)

    @property
    def row_count(self) -> int:
        """Rows that have not ended."""
        return len(self._rows)

    @property
    def is_lost(self) -> bool:
        """Whether the session is over."""
        return self.failure is not None

    async def greet(self, client: ClientInfo) -> Welcome:
        """Says Hello and waits for the Welcome. Raises SessionLostError, ProtocolError."""
        answer = await self._ask(Hello(epoch=self.epoch, protocol_version=PROTOCOL_VERSION, client=client))
        if not isinstance(answer, Welcome):
            raise ProtocolError(ErrorCode.MALFORMED_FRAME, "the engine answered Hello with a tokenizer chunk")
        return answer

    async def fetch_chunk(self, name: str, offset_bytes: int) -> TokenizerChunk:
        """One piece of a tokenizer file; one fetch at a time. Raises SessionLostError, ProtocolError."""
        answer = await self._ask(FetchTokenizer(epoch=self.epoch, name=name, offset_bytes=offset_bytes))
        if not isinstance(answer, TokenizerChunk) or (answer.name, answer.offset_bytes) != (name, offset_bytes):
            raise ProtocolError(
                ErrorCode.MALFORMED_FRAME, f"the engine did not answer with {name} from {offset_bytes} on"
            )
        return answer

    def submit(self, mailbox: RowMailbox) -> None:
        """Sends the mailbox's Submit. A session that is over puts its failure into the mailbox at once."""
        if self.failure is not None:
            mailbox.put_failure(self.failure)
            return
        self._rows[mailbox.submit.id] = mailbox
        self._send(mailbox.submit)

    def cancel(self, submit_id: SubmitId, reason: CancelReason, keep_tokens: int = 0) -> None:
        """Ends a live row with one Cancel; one that has ended, or was cancelled, needs none.

        keep_tokens: how much of it will be sent again, 0 where nobody knows.
        """
        if self._rows.pop(submit_id, None) is None or self.is_lost:
            return
        self.cancels_sent[reason] += 1
        self._send(Cancel(epoch=self.epoch, id=submit_id, reason=reason, keep_tokens=keep_tokens))
        log.info("row.cancelled", extra={"id": submit_id, "reason": reason})

    def ping(self, parsers: ParserNames | None) -> None:
        """Keeps the lease. parsers: once they are known."""
        self._send(Ping(epoch=self.epoch, parsers=parsers))

    def leave(self, failure: RowFailure) -> None:
        """Ends the session as lose() does, and tells the engine: it need not wait for the lease to end."""
        self._send(Leave(epoch=self.epoch))
        if not self.is_lost:
            self._channel.close(_LAST_WORD_MS)
        self.lose(failure)

    async def until_lost(self) -> None:
        """Waits for the end of the session; an engine lives as long as it lives, so there is no timeout."""
        await self._lost.wait()

    def lose(self, failure: RowFailure) -> None:
        """Ends the session and every row in it. The first failure stays."""
        if self.failure is not None:
            return
        self.failure = failure
        self._channel.close()
        self._lost.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SessionLostError(failure.message))
        rows, self._rows = self._rows, {}
        self._metrics.rows_lost(len(rows))
        for mailbox in rows.values():
            mailbox.put_failure(failure)
        log.info(
            "session.lost",
            extra={"epoch": self.epoch, "code": failure.code, "reason": failure.message, "rows": len(rows)},
        )

    async def _ask(self, message: AnyToEngine) -> Welcome | TokenizerChunk:
        """The answer to a Hello or a fetch; the caller's timeout, or the session's end, bounds the wait."""
        assert self._answer is None, "one question at a time"
        if self.failure is not None:
            raise SessionLostError(self.failure.message)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._send(message)
            return await self._answer
        finally:
            self._answer = None

    def _send(self, message: AnyToEngine) -> None:
        if self.is_lost:
            return
        try:
            self._channel.send(codec.encode(message))
        except ChannelFullError:
            self.lose(
                RowFailure(
                    code=ErrorCode.NOT_READY,
                    message="the engine does not read its messages; try again",
                    retry_after_s=RETRY_AFTER_S,
                )
            )

    def _hear(self, frame: bytes) -> None:
        try:
            message = codec.decode_from_engine(frame)
        except ProtocolError as error:
            # It may have held a row's end: its rows would wait for ever.
            log.warning("session.malformed_frame", extra={"reason": error.message, "frame_bytes": len(frame)})
            self.leave(RowFailure(code=ErrorCode.INTERNAL, message=f"the engine is not understood: {error.message}"))
            return
        if message.epoch != self.epoch:
            log.warning("session.stale_message", extra={"epoch": message.epoch, "expected": self.epoch})
            return
        self._dispatch(message)

    def _dispatch(self, message: AnyFromEngine) -> None:
        match message:
            case Step():
                self._hear_step(message)
            case Rejected():
                self._hear_rejected(message)
            case Welcome() | TokenizerChunk():
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(message)
            case Goodbye():
                self._hear_goodbye(message)
            case ControlDone():
                log.warning("session.unasked_control", extra={"id": message.id})
            case _:
                assert_never(message)

    def _hear_step(self, step: Step) -> None:
        now_s = time.monotonic()
        for delta in step.rows:
            mailbox = self._rows.get(delta.id)
            self._metrics.hear(delta, mailbox, now_s)
            # A row that was cancelled here may still bring what was on its way.
            if mailbox is None:
                continue
            mailbox.put_delta(delta)
            if not self._to_ring:
                asyncio.get_running_loop().call_soon(self._ring)
            self._to_ring[delta.id] = mailbox
            if mailbox.has_ended:
                del self._rows[delta.id]
            elif mailbox.is_overfull:
                self.cancel(delta.id, "gone")
                mailbox.put_failure(RowFailure(code=ErrorCode.INTERNAL, message="the client does not read its stream"))

    def _ring(self) -> None:
        for id_ in list(itertools.islice(self._to_ring, _HANDLERS_PER_TURN)):
            self._to_ring.pop(id_).ring()
        if self._to_ring:
            asyncio.get_running_loop().call_soon(self._ring)

    def _hear_rejected(self, rejected: Rejected) -> None:
        mailbox = self._rows.pop(rejected.id, None) if rejected.id is not None else None
        if mailbox is not None:
            mailbox.put_failure(
                RowFailure(
                    code=rejected.code,
                    message=rejected.message,
                    param=rejected.param,
                    retry_after_s=rejected.retry_after_s,
                )
            )
        elif rejected.id is None and self._answer is not None and not self._answer.done():
            self._answer.set_exception(ProtocolError(rejected.code, rejected.message))
        elif rejected.id is None:
            log.error("session.frame_rejected", extra={"code": rejected.code, "reason": rejected.message})

    def _hear_goodbye(self, goodbye: Goodbye) -> None:
        code = {
            "shutting_down": ErrorCode.SHUTTING_DOWN,
            "version_mismatch": ErrorCode.VERSION_MISMATCH,
            "lease_lost": ErrorCode.LEASE_LOST,
        }[goodbye.reason]
        message = goodbye.message or f"the engine ended the connection: {goodbye.reason}"
        self.lose(RowFailure(code=code, message=message, retry_after_s=RETRY_AFTER_S))
