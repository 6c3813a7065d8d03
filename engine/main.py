"""The engine process: settings, folder, lock, heartbeat, model, loop, exit status; in that order and back.

Owns what is opened and in which order it is given back. The schedule is loop.py's.
"""

import logging
import os
import secrets
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import zmq

from engine import openblas
from engine.cache.scheme import KvScheme, read_scheme
from engine.errors import DeviceLost, EngineError
from engine.garbage import leave_out_what_stands
from engine.heartbeat import EXIT_STUCK, Heartbeat, HeartbeatSettings
from engine.loop import EngineLoop
from engine.mailbox import Mailbox
from engine.memory import default_ceiling_bytes, limit_device_memory
from engine.memory_plan import Computed, plan_memory, within_memory
from engine.model.adapters import DEFAULT_NAME, Adapter, Adapters, check_folder, read_adapter
from engine.model.dense_reads import attending_model
from engine.model.draft import DraftModel, load_draft
from engine.model.facts import model_facts
from engine.model.kv_layers import quantized_caches
from engine.model.load import LoadedModel, find_model, load_model
from engine.model.support import Support, probe_batching
from engine.model.tokenizer_files import TOKENIZER_NAME, TokenizerFiles
from engine.mounts import Mounter
from engine.parts import LoopParts
from engine.prefix.keeper import PrefixKeeper, RowCaches
from engine.prefix.least import least_tokens, why_none_is_kept
from engine.prefix.store import StoreLimits
from engine.sampling.grammar import GrammarCompiler, GrammarTokenizer
from engine.sampling.sampler import HONOURED_FIELDS
from engine.settings import Settings
from engine.speculate import Speculator
from engine.status import StatusBoard
from protocol.endpoint import RuntimeFolder, bind_requests, lock_engine, open_runtime_folder, remove_sockets
from protocol.errors import EXIT_BAD_SETTING, ProtocolError
from protocol.logs import setup_logging
from protocol.messages import PROTOCOL_VERSION, Epoch, ModelFacts, Welcome
from protocol.settings import changed_settings, parse_settings
from protocol.status import ModelStatus

EXIT_CRASHED: Final = 1
# Prompt tokens in one chunk: on CPU attention is slow, and one chunk is one gap in everybody's stream.
CHUNK_TOKENS: Final = {"cpu": 128, "metal": 512, "cuda": 512}
# How long a stopping engine waits for clients to take its last messages.
_LAST_WORDS_MS: Final = 1_000

log = logging.getLogger(__name__)


class Interrupted(BaseException):
    """A signal that ends the process at once: before the loop runs, or the second one."""


class StopSignals:
    """SIGTERM and SIGINT. `stop` is set by the first one; what cannot drain, or will not wait, is interrupted."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.can_drain = False

    def install(self) -> None:
        """Takes both signals over; only the main thread may call this."""
        signal.signal(signal.SIGTERM, self._heard)
        signal.signal(signal.SIGINT, self._heard)

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        is_second = self.stop.is_set()
        self.stop.set()
        if is_second or not self.can_drain:
            raise Interrupted


def main(arguments: list[str]) -> int:
    """Runs one engine until it is stopped; returns the exit status."""
    started_s = time.monotonic()
    try:
        settings = parse_settings(Settings, arguments, "engine")
    except ProtocolError as error:
        return _refuse(error.message)
    setup_logging(settings.log_level)
    log.info("engine.settings", extra=changed_settings(settings))
    signals = StopSignals()
    signals.install()
    try:
        _run(settings, signals, started_s)
    except Interrupted:
        log.info("engine.interrupted")
    except (EngineError, ProtocolError) as error:
        if not signals.can_drain:
            return _refuse(error.message)
        log.exception("engine.crashed")
        return EXIT_CRASHED
    except DeviceLost as lost:
        log.critical("engine.device_lost", extra={"why": f"{lost}"})
        # Giving back what is on such a device may hang or abort.
        os._exit(EXIT_STUCK)
    except Exception:  # the process's last word
        log.exception("engine.crashed")
        return EXIT_CRASHED
    log.info("engine.stopped")
    return 0


def say_cpu_facts(loaded: LoadedModel, openblas_path: str | None) -> None:
    """One line on Linux CPU: what makes it fast, or what to install and what its absence costs."""
    if sys.platform != "linux" or loaded.device != "cpu":
        return
    if openblas_path is not None:
        log.info("engine.cpu", extra={"openblas": openblas_path, "dtype": loaded.dtype})
        return
    log.warning(
        "engine.no_openblas",
        extra={
            "install": openblas.PACKAGE,
            "cost": "float32 products run at about 1.5 GFLOP/s instead of 80 or more",
            "dtype": loaded.dtype,
        },
    )


def _run(settings: Settings, signals: StopSignals, started_s: float) -> None:
    """Everything that is opened here is closed in reverse order, whatever happens."""
    with ExitStack() as opened:
        folder = open_runtime_folder(Path(settings.runtime_dir))
        opened.callback(os.close, lock_engine(folder))
        opened.callback(remove_sockets, folder)
        board = StatusBoard(Epoch(secrets.token_hex(8)), settings.restarts)
        board.set_phase("loading", settings.model)
        beating = HeartbeatSettings(step_limit_s=settings.step_limit_s, exit_with_parent=settings.exit_with_parent)
        opened.enter_context(Heartbeat(folder, board, signals.stop, beating))
        context: zmq.Context[zmq.Socket[bytes]] = opened.enter_context(zmq.Context())
        requests = bind_requests(context, folder)
        # The last Step and the Goodbye leave in the background: closing waits for them, but not for ever.
        opened.callback(requests.close, linger=_LAST_WORDS_MS)
        parts = _prepare(settings, board, requests, signals.stop, folder)
        opened.callback(parts.grammars.close)
        loop = EngineLoop(parts)
        leave_out_what_stands()
        signals.can_drain = True
        board.set_phase("ready")
        log.info("engine.ready", extra={"start_s": time.monotonic() - started_s, "epoch": board.epoch})
        loop.run()


def _prepare(
    settings: Settings,
    board: StatusBoard,
    requests: "zmq.Socket[bytes]",
    stop: threading.Event,
    folder: RuntimeFolder,
) -> LoopParts:
    """Loads and warms the model; returns what the loop that serves it is made of."""
    limit_device_memory()
    path = find_model(settings.model)
    tokenizer = TokenizerFiles.read(path, trust_remote_code=settings.trust_remote_code)
    scheme = read_scheme(settings, path)
    Mounter.check_flags(settings.adapter)
    if settings.adapter_path is not None:
        check_folder(Path(settings.adapter_path))
    # A layer that cannot be quantized is named before gigabytes are read.
    loaded = load_model(settings, path, lambda model: scheme and quantized_caches(model, scheme))
    model = attending_model(loaded.model, loaded.device, scheme)
    adapters = Adapters(loaded.model, _default_adapter(settings, loaded), forward=model)
    mounter = Mounter(adapters, folder.path, str(path))
    mounter.mount_all(settings.adapter, is_restart=settings.restarts > 0)
    board.set_adapters(adapters.names)
    say_cpu_facts(loaded, openblas.LOADED_PATH)
    support = _warm(model, board, settings.max_rows, scheme)
    draft = load_draft(settings, loaded)
    facts = model_facts(loaded, tokenizer, settings, support.batching, HONOURED_FIELDS)
    chunk_tokens = settings.prefill_step_size or CHUNK_TOKENS[loaded.device]
    computed = Computed(model, support.cache_plan, chunk_tokens, None if draft is None else draft.model)
    with board.turn():
        memory = plan_memory(computed, facts, _budget_bytes(settings, loaded, draft))
    facts = within_memory(facts, memory)
    limits = StoreLimits(memory.budget_bytes, settings.prompt_cache_size, settings.prompt_cache_bytes)
    prefixes = _prefixes(limits, adapters, computed, facts)
    facts = msgspec.structs.replace(facts, wants_snapshots=prefixes.wants_snapshots)
    board.set_model(_model_status(facts), support.batching)
    log.debug("model.ready", extra={"facts": facts})
    welcome = Welcome(epoch=board.epoch, protocol_version=PROTOCOL_VERSION, facts=facts, tokenizer=tokenizer.manifest)
    return LoopParts(
        model=model,
        adapters=adapters,
        mounter=mounter,
        mailbox=Mailbox(requests, welcome, tokenizer, settings.lease_s),
        board=board,
        facts=facts,
        stop=stop,
        chunk_tokens=chunk_tokens,
        grace_s=settings.grace_s,
        weights_bytes=loaded.weights_bytes,
        grammars=GrammarCompiler(_grammar_tokenizer(tokenizer, facts)),
        cache_plan=support.cache_plan,
        prefixes=prefixes,
        speculator=None if draft is None else Speculator(draft, settings.num_draft_tokens, chunk_tokens),
        prompt_concurrency=settings.prompt_concurrency,
        memory=memory,
    )


def _prefixes(limits: StoreLimits, adapters: Adapters, computed: Computed, facts: ModelFacts) -> PrefixKeeper:
    plan = computed.cache_plan
    kinds = plan.kinds(computed.model)
    least = min(least_tokens(computed.chunk_tokens), facts.context_length)
    why_none = why_none_is_kept(limits, plan.samples(computed.model, least), least)
    is_asked_for = 0 in (limits.entries, limits.kept_bytes)
    if why_none and not is_asked_for:
        log.warning("prefixes.off", extra={"reason": why_none})
    rows = RowCaches(kinds, computed.chunk_tokens, facts.context_length, bool(plan.quantized), why_none)
    return PrefixKeeper(limits, adapters, rows)


def _budget_bytes(settings: Settings, loaded: LoadedModel, draft: DraftModel | None) -> int:
    if settings.kv_cache_memory_bytes is not None:
        return settings.kv_cache_memory_bytes
    return default_ceiling_bytes(loaded.weights_bytes + (0 if draft is None else draft.weights_bytes))


def _default_adapter(settings: Settings, loaded: LoadedModel) -> Adapter | None:
    path = settings.adapter_path
    return None if path is None else read_adapter(loaded.model, DEFAULT_NAME, Path(path))


def _grammar_tokenizer(tokenizer: TokenizerFiles, facts: ModelFacts) -> GrammarTokenizer:
    content = tokenizer.content(TOKENIZER_NAME)
    assert content is not None, "the files were read with it"
    return GrammarTokenizer.read(content, facts.vocabulary_size, facts.eos_ids)


def _warm(model: Any, board: StatusBoard, max_rows: int, scheme: KvScheme | None) -> Support:
    """The probe runs the first kernels, so a device that hangs on them is caught by the step limit."""
    board.set_phase("warming")
    with board.turn():
        return probe_batching(model, max_rows, scheme)


def _model_status(facts: ModelFacts) -> ModelStatus:
    return ModelStatus(
        id=facts.id,
        path=facts.path,
        dtype=facts.dtype,
        device=facts.device,
        context_length=facts.context_length,
        max_rows=facts.limits.max_rows,
        model_context_length=facts.model_context_length,
    )


def _refuse(message: str) -> int:
    """One line for the user; the status tells a supervisor not to try again."""
    line = " ".join(message.removeprefix("engine: ").split())
    sys.stderr.write(f"engine: {line}\n")
    return EXIT_BAD_SETTING
