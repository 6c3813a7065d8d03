"""An engine that speaks the whole protocol without MLX: real sockets in a runtime folder, scripted rows.

As a thread for unit tests (FakeEngine), as a process for e2e: `python -m tests.fakes.fake_engine --runtime-dir D`.
"""

import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import assert_never

import zmq
from tokenizers import Tokenizer

from protocol import codec
from protocol.endpoint import RuntimeFolder, bind_requests, bind_status, lock_engine, open_runtime_folder
from protocol.errors import EXIT_BAD_SETTING, ErrorCode, ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    AnyToEngine,
    Batching,
    BosRule,
    Cancel,
    ClientInfo,
    Control,
    ControlDone,
    Epoch,
    FetchTokenizer,
    GenerationDefaults,
    Goodbye,
    Hello,
    Leave,
    Limits,
    ModelFacts,
    ParserNames,
    Ping,
    Rejected,
    Step,
    Submit,
    SubmitId,
    TokenizerChunk,
    TokenizerFile,
    TokenizerManifest,
    TokenPrompt,
    Welcome,
)
from protocol.sampling import Sampling
from protocol.settings import parse_settings
from protocol.status import EngineStatus, FrontendStatus, ModelStatus, Phase, PrefixStatus, StepStatus, TokenStatus
from protocol.tokenizer_hash import NamedFile, tokenizer_sha256
from tests.fakes.fake_rows import FakeRow, FakeRows
from tests.fakes.fake_settings import FakeSettings
from tests.fakes.scripts import UNREAD, asked, script_for
from tests.fakes.tokenizer_folder import EOS_TOKEN, build_tokenizer_folder

# A grammar with this word in it is refused as one that does not compile; all others are taken and not followed.
UNCOMPILABLE = "uncompilable"

# When its model was made.
CREATED = 1_735_689_600
FILE_NAMES = ("tokenizer.json", "tokenizer_config.json")


class FakeEngine:
    """Runs in the thread that calls run(), or in one of its own between start() and stop().

    heard: every message that was understood and not stale, in order. Tests may set the public attributes
    while it runs; each is one plain value. is_silent: no heartbeats; lose_leases: ends every lease, once.
    """

    def __init__(self, settings: FakeSettings, *, protocol_version: int = PROTOCOL_VERSION) -> None:
        self.settings = settings
        self.epoch = Epoch(secrets.token_hex(8))
        self.protocol_version = protocol_version
        self.phase: Phase = "loading" if settings.load_s else "ready"
        self.is_silent = False
        self.lose_leases = False
        self.prefix = PrefixStatus()
        self.heard: list[AnyToEngine] = []
        self.clients: dict[bytes, ClientInfo] = {}
        self.parsers: dict[bytes, ParserNames | None] = {}
        self._heard_at_s: dict[bytes, float] = {}
        self._folder: RuntimeFolder = open_runtime_folder(Path(settings.runtime_dir))
        model = Path(settings.model) if settings.model else build_tokenizer_folder(self._folder.path / "fake-model")
        self._files = [NamedFile(name, (model / name).read_bytes()) for name in FILE_NAMES]
        self.tokenizer = Tokenizer.from_buffer(self._files[0].content)
        self.rows = FakeRows(
            max_rows=settings.max_rows,
            prefill_tokens_per_turn=settings.prefill_tokens_per_turn,
            context_length=settings.context_length,
            eos_id=self.tokenizer.token_to_id(EOS_TOKEN),
            cached_tokens=settings.cached_tokens,
        )
        self._started_s = time.monotonic()
        self._stop = threading.Event()
        self._is_crash = False
        self._is_up = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "FakeEngine":
        """Runs in a thread; returns when the sockets are bound."""
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def stop(self, *, crash: bool = False) -> None:
        """Says goodbye and ends. crash: ends without a word, as a killed process."""
        self._is_crash = crash
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)

    def request_stop(self) -> None:
        """Drains: rows finish, nothing new begins, run() returns."""
        self.phase = "draining"

    def run(self) -> None:
        """The loop: hear, step, tell, push."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        lock = lock_engine(self._folder)
        self._requests = bind_requests(context, self._folder)
        self._status = bind_status(context, self._folder)
        self._is_up.set()
        try:
            self._loop()
        finally:
            context.destroy(linger=0 if self._is_crash else 200)
            os.close(lock)

    def cancels(self) -> list[Cancel]:
        """Every Cancel heard."""
        return [message for message in list(self.heard) if isinstance(message, Cancel)]

    def submits(self) -> list[Submit]:
        """Every Submit heard."""
        return [message for message in list(self.heard) if isinstance(message, Submit)]

    def decoded(self, submit: Submit) -> str:
        """A Submit's prompt as text, special tokens too."""
        return self.tokenizer.decode(codec.unpack_ids(submit.prompt.ids), skip_special_tokens=False)

    def _loop(self) -> None:
        next_step_s = next_status_s = time.monotonic()
        drain_until_s: float | None = None
        while not self._stop.is_set():
            now_s = time.monotonic()
            if self.phase == "loading" and now_s - self._started_s >= self.settings.load_s:
                self.phase = "ready"
            if self.phase == "draining":
                drain_until_s = drain_until_s or now_s + self.settings.grace_s
                if not self.rows.live() or now_s > drain_until_s:
                    break
            if now_s >= next_status_s:
                next_status_s = now_s + self.settings.status_ms / 1000
                self._push()
            if now_s >= next_step_s:
                next_step_s = now_s + self.settings.step_ms / 1000
                self._take_turn()
            self._hear(max(0.0, min(next_step_s, next_status_s) - time.monotonic()))
        if not self._is_crash:
            for client in list(self.clients):
                self._tell(client, Goodbye(epoch=self.epoch, reason="shutting_down"))

    def _take_turn(self) -> None:
        for client, deltas in self.rows.turn().items():
            self._tell(client, Step(epoch=self.epoch, step=self.rows.tally.steps, rows=tuple(deltas)))

    def _end_leases(self, now_s: float) -> None:
        lose_all, self.lose_leases = self.lose_leases, False
        for client, heard_s in list(self._heard_at_s.items()):
            if lose_all or now_s - heard_s > self.settings.lease_s:
                self._tell(client, Goodbye(epoch=self.epoch, reason="lease_lost"))
                self._forget(client)

    def _hear(self, limit_s: float) -> None:
        # Leases are judged when nothing is left unread: pings may wait in the socket of a process that could not run.
        self._requests.poll(int(limit_s * 1000) + 1)
        for _ in range(512):
            try:
                client, *frames = self._requests.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                self._end_leases(time.monotonic())
                return
            self._hear_frames(client, frames)

    def _hear_frames(self, client: bytes, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise ProtocolError(ErrorCode.MALFORMED_FRAME, f"a message of {len(frames)} frames")
            message = codec.decode_to_engine(frames[0])
        except ProtocolError as error:
            self.rows.tally.malformed_frames += 1
            id_ = codec.submit_id_of(frames[0]) if len(frames) == 1 else None
            self._reject(client, error, None if id_ is None else SubmitId(id_))
            return
        if message.epoch != self.epoch:
            self.rows.tally.stale_messages += 1
            return
        self.heard.append(message)
        self._heard_at_s[client] = time.monotonic()
        self._answer(client, message)

    def _answer(self, client: bytes, message: AnyToEngine) -> None:
        match message:
            case Hello():
                self._greet(client, message)
            case Submit():
                self._admit(client, message)
            case Cancel():
                self.rows.cancel(client, message.id, message.reason)
            case FetchTokenizer():
                self._tell(client, self._chunk(message))
            case Control():
                self._tell(client, ControlDone(epoch=self.epoch, id=message.id, error="not supported"))
            case Leave():
                self._forget(client)
            case Ping(parsers=parsers):
                self.parsers[client] = parsers
            case _:
                assert_never(message)

    def _greet(self, client: bytes, hello: Hello) -> None:
        if hello.protocol_version != self.protocol_version:
            self._tell(client, Goodbye(epoch=self.epoch, reason="version_mismatch", message="another version"))
            return
        self.clients[client] = hello.client
        manifest = TokenizerManifest(
            sha256=tokenizer_sha256(self._files),
            files=tuple(TokenizerFile(name=file.name, length_bytes=len(file.content)) for file in self._files),
        )
        welcome = Welcome(
            epoch=self.epoch, protocol_version=self.protocol_version, facts=self.facts(), tokenizer=manifest
        )
        self._tell(client, welcome)

    def facts(self) -> ModelFacts:
        """What Welcome says of the model."""
        settings = self.settings
        return ModelFacts(
            id=settings.model_id,
            aliases=("default_model",),
            path="none",
            context_length=settings.context_length,
            vocabulary_size=self.tokenizer.get_vocab_size(),
            eos_ids=(self.rows.eos_id,),
            bos=BosRule(),
            defaults=GenerationDefaults(),
            batching=Batching(mode="batch", reason="scripted"),
            limits=Limits(
                max_rows=settings.max_rows, max_waiting=settings.max_waiting, max_frame_bytes=codec.MAX_FRAME_BYTES
            ),
            dtype="float32",
            device="none",
            sampling=Sampling.__struct_fields__,
            created=CREATED,
            fingerprint="fp_fake",
            wants_snapshots=settings.wants_snapshots,
            model_context_length=settings.model_context_length,
            kv_budget_bytes=settings.kv_budget_bytes,
        )

    def _chunk(self, fetch: FetchTokenizer) -> AnyFromEngine:
        content = next((file.content for file in self._files if file.name == fetch.name), None)
        if content is None:
            return Rejected(epoch=self.epoch, code=ErrorCode.INVALID_REQUEST, message=f"no file {fetch.name}")
        # Small pieces, so that the small tokenizer of the tests takes several.
        end = fetch.offset_bytes + 4_096
        return TokenizerChunk(
            epoch=self.epoch,
            name=fetch.name,
            offset_bytes=fetch.offset_bytes,
            data=content[fetch.offset_bytes : end],
            is_last=end >= len(content),
        )

    def _admit(self, client: bytes, submit: Submit) -> None:
        self.rows.tally.submitted += 1
        if self.phase != "ready":
            self._reject(client, ProtocolError(ErrorCode.SHUTTING_DOWN, "the engine is stopping"), submit.id)
            return
        if len(self.rows.waiting) >= self.settings.max_waiting:
            self._reject(client, ProtocolError(ErrorCode.QUEUE_FULL, "the queue is full"), submit.id)
            return
        if submit.adapter is not None and submit.adapter not in self.settings.adapters:
            message = f"adapter {submit.adapter} is not mounted"
            self._reject(client, ProtocolError(ErrorCode.MODEL_NOT_FOUND, message), submit.id, "adapters")
            return
        if submit.grammar is not None and UNCOMPILABLE in submit.grammar.text:
            message = f"the grammar does not compile: {UNCOMPILABLE} at 1(8)"
            self._reject(client, ProtocolError(ErrorCode.INVALID_REQUEST, message), submit.id, "grammar")
            return
        match submit.prompt:
            case TokenPrompt(ids=packed):
                ids = codec.unpack_ids(packed)
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        draw = str(submit.seed) if submit.sampling.temperature else ""
        now_s = time.monotonic()
        row = FakeRow(
            client=client,
            submit=submit,
            script=script_for(text, self.tokenizer, self.rows.eos_id, draw),
            prompt_tokens=len(ids),
            left_tokens=len(ids),
            deadline_s=None if submit.deadline_ms is None else now_s + submit.deadline_ms / 1000,
            is_unread=asked(text).startswith(UNREAD),
        )
        self.rows.waiting.append(row)

    def _reject(self, client: bytes, error: ProtocolError, id_: SubmitId | None, param: str | None = None) -> None:
        if id_ is not None and error.code != ErrorCode.MALFORMED_FRAME:
            self.rows.tally.rejected += 1
        self._tell(client, Rejected(epoch=self.epoch, code=error.code, message=error.message, id=id_, param=param))

    def _tell(self, client: bytes, message: AnyFromEngine) -> None:
        try:
            self._requests.send_multipart([client, codec.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._forget(client)

    def _forget(self, client: bytes) -> None:
        self._heard_at_s.pop(client, None)
        self.clients.pop(client, None)
        self.rows.drop_client(client)

    def _push(self) -> None:
        if self.is_silent:
            return
        tally, settings = self.rows.tally, self.settings
        live = self.rows.live()
        status = EngineStatus(
            epoch=self.epoch,
            protocol_version=self.protocol_version,
            pid=os.getpid(),
            phase=self.phase,
            uptime_s=time.monotonic() - self._started_s,
            model=ModelStatus(id=settings.model_id, path="none", context_length=settings.context_length),
            batching=Batching(mode="batch", reason="scripted"),
            rows=self.rows.counts(),
            step=StepStatus(count=tally.steps),
            tokens=TokenStatus(generated_total=tally.generated_tokens),
            counters=tally.counters(),
            frontends=tuple(
                FrontendStatus(
                    name=info.name,
                    pid=info.pid,
                    listens=info.listens,
                    rows=sum(1 for row in live if row.client == client),
                    parsers=self.parsers.get(client),
                )
                for client, info in self.clients.items()
            ),
            adapters=settings.adapters,
            prefix=self.prefix,
        )
        self._status.send(codec.encode(status))


def main(arguments: list[str]) -> int:
    """The process."""
    try:
        engine = FakeEngine(parse_settings(FakeSettings, arguments, "fake_engine"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: engine.request_stop())
        engine.run()
    except ProtocolError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_BAD_SETTING
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
