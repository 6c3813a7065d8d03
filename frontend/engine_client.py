"""This frontend's link to whichever engine lives in the runtime folder, over all its epochs.

Owns the status subscription, the current session, the loaded tokenizer and the judgement "ready".
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq

from frontend.channel import Channel
from frontend.engine_session import RETRY_AFTER_S, EngineSession, SessionLostError
from frontend.errors import RequestError
from frontend.metrics import Metrics
from frontend.model_text import ModelText
from frontend.stream import RowFailure
from frontend.tokenizer_copy import ensure_tokenizer_copy
from protocol import codec
from protocol.endpoint import PING_INTERVAL_S, RuntimeFolder, connect_status
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    BosRule,
    CancelReason,
    ClientInfo,
    Epoch,
    ModelFacts,
    TokenizerManifest,
)
from protocol.status import EngineStatus

log = logging.getLogger(__name__)

# Four missed heartbeats and more: no new work goes there. After LOST_S its rows are given up, too.
SILENT_S: Final = 3.0
LOST_S: Final = 10.0
_WELCOME_LIMIT_S: Final = 10.0
_RETRY_S: Final = 1.0

LoadText = Callable[[Path, BosRule], ModelText]


@dataclass(frozen=True, slots=True)
class ReadyEngine:
    """An engine that takes work: the session to send it through, and what its prompts are made with."""

    session: EngineSession
    facts: ModelFacts
    text: ModelText


@dataclass(frozen=True, slots=True)
class EngineState:
    """phase: the engine's own, or this frontend's view: unreachable, silent, incompatible, connecting."""

    phase: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _TextKey:
    sha256: str
    bos: BosRule


class EngineClient:
    """Keeps one session with the current engine epoch while run() runs."""

    def __init__(self, folder: RuntimeFolder, client: ClientInfo, load_text: LoadText) -> None:
        self._folder = folder
        self._client = client
        self._load_text = load_text
        self.metrics = Metrics()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._changed = asyncio.Event()
        self._status: EngineStatus | None = None
        self._heard_at_s = 0.0
        self._session: EngineSession | None = None
        self._ready: ReadyEngine | None = None
        self._facts: ModelFacts | None = None
        self._text: ModelText | None = None
        self._text_key: _TextKey | None = None
        self._trouble = ""
        self._ended_epochs: set[Epoch] = set()
        self._past_cancels: Counter[CancelReason] = Counter()

    @property
    def status(self) -> EngineStatus | None:
        """The newest status frame; it may be old, see silent_s."""
        return self._status

    @property
    def silent_s(self) -> float | None:
        """Seconds since the newest status frame; None when there was none."""
        return None if self._status is None else time.monotonic() - self._heard_at_s

    @property
    def state(self) -> EngineState:
        """Whether work can be sent, and if not, why."""
        status, silent_s = self._status, self.silent_s
        if status is None or silent_s is None:
            return EngineState("unreachable", self._trouble or f"no engine has been heard in {self._folder.path}")
        if silent_s > SILENT_S:
            return EngineState("silent", f"the engine was last heard {silent_s:.0f} s ago")
        if status.protocol_version != PROTOCOL_VERSION:
            versions = f"the engine speaks protocol {status.protocol_version}, this frontend {PROTOCOL_VERSION}"
            return EngineState("incompatible", f"{versions}; run both from one installation")
        if status.phase == "ready" and (self._ready is None or self._ready.session.is_lost):
            return EngineState("connecting", self._trouble)
        return EngineState(status.phase, status.phase_detail)

    @property
    def facts(self) -> ModelFacts | None:
        """The served model's facts, as last told; None until an engine was connected."""
        return self._facts

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters mounted in the engine, as it last told."""
        return () if self._status is None else self._status.adapters

    @property
    def ready(self) -> ReadyEngine | None:
        """What a request needs, when work can be sent now."""
        return self._ready if self.state.phase == "ready" else None

    @property
    def row_count(self) -> int:
        """Rows of this frontend that have not ended."""
        return 0 if self._session is None else self._session.row_count

    def cancels_sent(self) -> Counter[CancelReason]:
        """How many Cancels went out since the start, by reason."""
        return self._past_cancels + (self._session.cancels_sent if self._session else Counter[CancelReason]())

    async def wait_ready(self, limit_s: float) -> ReadyEngine:
        """Waits for an engine that takes work. Raises RequestError(NOT_READY | SHUTTING_DOWN) after limit_s seconds."""
        deadline_s = time.monotonic() + limit_s
        while (ready := self.ready) is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not await self._until_changed(left_s):
                raise self._not_ready()
        return ready

    async def run(self) -> None:
        """Follows the engine until cancelled."""
        subscription = Channel(connect_status(self._context.socket(zmq.SUB), self._folder), self._hear_status)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._follow())
        finally:
            subscription.close()
            self._context.destroy(linger=0)

    async def _follow(self) -> None:
        while True:
            await self._serve(await self._next_epoch())
            if self._trouble:
                await asyncio.sleep(_RETRY_S)

    async def _next_epoch(self) -> Epoch:
        """The epoch of an engine that is ready and was not left for good."""
        while True:
            status, silent_s = self._status, self.silent_s
            if status is not None and silent_s is not None and silent_s <= SILENT_S:
                epoch = Epoch(status.epoch)
                is_ours = status.protocol_version == PROTOCOL_VERSION and epoch not in self._ended_epochs
                if is_ours and status.phase == "ready":
                    return epoch
            await self._until_changed(PING_INTERVAL_S)

    async def _serve(self, epoch: Epoch) -> None:
        session = EngineSession(self._context, self._folder, epoch, self.metrics)
        self._session = session
        end = RowFailure(code=ErrorCode.SHUTTING_DOWN, message="this frontend is stopping", retry_after_s=RETRY_AFTER_S)
        try:
            await self._prepare(session)
            await session.until_lost()
        except SessionLostError:
            self._note_trouble(session.failure.message if session.failure else "the session ended")
        except (ProtocolError, TimeoutError, OSError) as error:
            self._note_trouble(str(error) or "the engine does not answer")
            end = RowFailure(code=ErrorCode.NOT_READY, message=self._trouble, retry_after_s=RETRY_AFTER_S)
        finally:
            session.leave(end)
            self._leave(session)

    def _leave(self, session: EngineSession) -> None:
        is_final = {ErrorCode.SHUTTING_DOWN, ErrorCode.VERSION_MISMATCH}
        if session.failure is not None and session.failure.code in is_final:
            self._ended_epochs.add(session.epoch)
        self._past_cancels += session.cancels_sent
        self._session = None
        self._ready = None
        self._notify()

    async def _prepare(self, session: EngineSession) -> None:
        async with asyncio.timeout(_WELCOME_LIMIT_S):
            welcome = await session.greet(self._client)
        if welcome.protocol_version != PROTOCOL_VERSION:
            raise ProtocolError(ErrorCode.VERSION_MISMATCH, f"the engine speaks protocol {welcome.protocol_version}")
        text = await self._text_of(session, welcome.tokenizer, welcome.facts.bos)
        self._ready = ReadyEngine(session, welcome.facts, text)
        self._facts = welcome.facts
        self._trouble = ""
        session.ping(text.parsers)
        log.info("engine.connected", extra={"epoch": session.epoch, "model": welcome.facts.id})
        self._notify()

    async def _text_of(self, session: EngineSession, manifest: TokenizerManifest, bos: BosRule) -> ModelText:
        key = _TextKey(manifest.sha256, bos)
        if self._text is None or self._text_key != key:
            folder = await ensure_tokenizer_copy(self._folder.tokenizers_path, manifest, session.fetch_chunk)
            self._text = await asyncio.to_thread(self._load_text, folder, bos)
            self._text_key = key
        return self._text

    async def _beat(self) -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(PING_INTERVAL_S)
            if self._session is None:
                continue
            self._session.ping(None if self._ready is None else self._ready.text.parsers)
            # After a sleep of this process, heartbeats lie unread: judged once they are heard.
            was_asleep = time.monotonic() - began_s > 2 * PING_INTERVAL_S
            if (self.silent_s or 0.0) > LOST_S and not was_asleep:
                self._session.leave(
                    RowFailure(
                        code=ErrorCode.NOT_READY,
                        message=f"the engine has been silent for {LOST_S:.0f} s",
                        retry_after_s=RETRY_AFTER_S,
                    )
                )

    def _hear_status(self, frame: bytes) -> None:
        try:
            status = codec.decode_status(frame)
        except ProtocolError as error:
            self._note_trouble(f"the engine's status is not understood: {error.message}")
            return
        before, self._status = self._status, status
        self._heard_at_s = time.monotonic()
        if before is None or (before.epoch, before.phase) != (status.epoch, status.phase):
            log.debug("engine.phase", extra={"epoch": status.epoch, "phase": status.phase})
        if self._session is not None and self._session.epoch != status.epoch:
            self._session.lose(
                RowFailure(
                    code=ErrorCode.NOT_READY,
                    message="the engine restarted while the request ran; try again",
                    retry_after_s=RETRY_AFTER_S,
                )
            )
        self._notify()

    def _note_trouble(self, message: str) -> None:
        """Keeps the message for whoever asks for the state, and logs it when it is another than before."""
        if message != self._trouble:
            log.warning("engine.trouble", extra={"reason": message})
        self._trouble = message

    def _not_ready(self) -> RequestError:
        state = self.state
        is_leaving = state.phase in ("draining", "stopping")
        return RequestError(
            ErrorCode.SHUTTING_DOWN if is_leaving else ErrorCode.NOT_READY,
            f"the engine is not ready (phase: {state.phase})" + (f": {state.detail}" if state.detail else ""),
            retry_after_s=RETRY_AFTER_S,
        )

    def _notify(self) -> None:
        # set() wakes everyone who waits now; the next change needs a cleared event.
        self._changed.set()
        self._changed.clear()

    async def _until_changed(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
