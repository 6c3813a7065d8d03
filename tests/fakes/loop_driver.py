"""Drives an EngineLoop turn by turn without sockets: mail goes in, what each row was told comes out."""

import threading
from dataclasses import dataclass, field
from typing import Any

import mlx.nn as nn

from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.errors import EngineError
from engine.loop import EngineLoop
from engine.mailbox import CancelHeard, Client, ClientLost, ControlHeard, Heard, SubmitHeard
from engine.memory_plan import DraftMemory, MemoryPlan, footprint_of
from engine.model.adapters import Adapters
from engine.mounts import Mounter
from engine.parts import LoopParts
from engine.prefix.keeper import PrefixKeeper, RowCaches
from engine.prefix.store import Dropped, StoreLimits
from engine.sampling.grammar import GrammarCompiler
from engine.speculate import Speculator
from engine.status import StatusBoard
from protocol.codec import decode_from_engine, encode, pack_ids, unpack_ids
from protocol.messages import (
    AnyFromEngine,
    Batching,
    BosRule,
    Cancel,
    CancelReason,
    Control,
    ControlCommand,
    Epoch,
    Finish,
    GenerationDefaults,
    Limits,
    ModelFacts,
    RowDelta,
    Step,
    Submit,
    SubmitId,
    TokenPrompt,
)
from tests.fakes.grammars import compiler

CLIENT = b"client"
EPOCH = Epoch("epoch")
ROOMY = StoreLimits(1 << 30)
OFF = StoreLimits(0)


@dataclass
class FakeMailbox:
    """Mailbox's interface for the loop, over plain lists."""

    incoming: list[Heard] = field(default_factory=list)
    sent: list[tuple[bytes, AnyFromEngine]] = field(default_factory=list)
    rejected: dict[SubmitId | None, EngineError] = field(default_factory=dict)
    clients: dict[bytes, Client] = field(default_factory=dict)
    answers: dict[str, str | None] = field(default_factory=dict)
    dropped: dict[str, Dropped | None] = field(default_factory=dict)
    malformed_frames: int = 0
    stale_messages: int = 0
    goodbyes: int = 0
    ended_leases: list[bytes] = field(default_factory=list)
    gone: set[bytes] = field(default_factory=set)
    waits_ms: list[int] = field(default_factory=list)

    def hear(self, now: float, wait_ms: int) -> list[Heard]:
        self.waits_ms.append(wait_ms)
        heard, self.incoming = self.incoming, []
        return heard

    def tell(self, client: bytes, message: AnyFromEngine) -> None:
        if client in self.gone:
            self.incoming.append(ClientLost(client, is_reachable=False))
            return
        self.sent.append((client, decode_from_engine(encode(message))))

    def tell_step(self, client: bytes, step: Step) -> None:
        self.tell(client, step)

    def lose(self, client: bytes) -> None:
        self.incoming.append(ClientLost(client, is_reachable=True))

    def reject(self, client: bytes, error: EngineError, id_: SubmitId | None) -> None:
        self.rejected[id_] = error

    def control_done(self, heard: ControlHeard, error: str | None, dropped: Dropped | None = None) -> None:
        self.answers[heard.control.id] = error
        self.dropped[heard.control.id] = dropped

    def end_lease(self, client: bytes) -> None:
        self.ended_leases.append(client)

    def say_goodbye(self, message: str) -> None:
        self.goodbyes += 1


def facts_of(model: nn.Module, *, max_rows: int = 32, eos_ids: tuple[int, ...] = (), **changes: Any) -> ModelFacts:
    """Facts of an in-memory model for tests."""
    fields: dict[str, Any] = {
        "id": "model",
        "path": "nowhere",
        "context_length": 4_096,
        "vocabulary_size": _vocabulary_size(model),
        "eos_ids": eos_ids,
        "bos": BosRule(),
        "defaults": GenerationDefaults(),
        "batching": Batching(mode="batch", reason="test"),
        "limits": Limits(max_rows=max_rows, max_waiting=100, max_frame_bytes=1 << 23),
        "dtype": "float32",
        "device": "cpu",
    }
    return ModelFacts(**{**fields, **changes})


def _vocabulary_size(model: nn.Module) -> int:
    nested = getattr(model.args, "text_config", None)
    return model.args.vocab_size if nested is None else getattr(nested, "vocab_size", None) or nested["vocab_size"]


class LoopDriver:
    """An engine loop under a test's hand. weights_bytes: as the cost rule sees them; so many keep rows in one group."""

    def __init__(
        self,
        model: nn.Module,
        facts: ModelFacts | None = None,
        *,
        chunk_tokens: int = 128,
        grace_s: float = 30.0,
        cache_plan: CachePlan = DEFAULT_PLAN,
        weights_bytes: int = 1 << 30,
        grammars: GrammarCompiler | None = None,
        speculator: Speculator | None = None,
        prefixes: StoreLimits = ROOMY,
        budget_bytes: int = 1 << 50,
        draft: DraftMemory | None = None,
    ) -> None:
        self.mailbox = FakeMailbox()
        self.board = StatusBoard(EPOCH, 0)
        self.stop = threading.Event()
        self.facts = facts or facts_of(model)
        self.adapters = adapters = Adapters(model)
        caches = RowCaches(cache_plan.kinds(model), chunk_tokens, self.facts.context_length, bool(cache_plan.quantized))
        self.prefixes = PrefixKeeper(prefixes, adapters, caches)
        self.loop = EngineLoop(
            LoopParts(
                model=model,
                adapters=adapters,
                mounter=Mounter(adapters, None, ""),
                mailbox=self.mailbox,  # pyright: ignore[reportArgumentType]  # same interface
                board=self.board,
                facts=self.facts,
                stop=self.stop,
                chunk_tokens=chunk_tokens,
                grace_s=grace_s,
                weights_bytes=weights_bytes,
                cache_plan=cache_plan,
                speculator=speculator,
                grammars=grammars or compiler(),
                prefixes=self.prefixes,
                memory=MemoryPlan(
                    budget_bytes=budget_bytes,
                    footprint=footprint_of(model, cache_plan, chunk_tokens),
                    vocabulary_size=self.facts.vocabulary_size,
                    draft=draft,
                ),
            )
        )
        self.turns = 0

    def submit(self, id_: str, prompt: list[int], client: bytes = CLIENT, **changes: Any) -> None:
        """Queues a Submit for the next turn. Greedy, 20 tokens unless said."""
        fields: dict[str, Any] = {
            "epoch": EPOCH,
            "id": SubmitId(id_),
            "group": id_,
            "model": "model",
            "prompt": TokenPrompt(ids=pack_ids(prompt)),
            "max_tokens": 20,
        }
        self.mailbox.incoming.append(SubmitHeard(client, Submit(**{**fields, **changes})))

    def cancel(self, id_: str, reason: CancelReason = "gone", client: bytes = CLIENT, *, keep_tokens: int = 0) -> None:
        """Queues a Cancel for the next turn."""
        cancel = Cancel(epoch=EPOCH, id=SubmitId(id_), reason=reason, keep_tokens=keep_tokens)
        self.mailbox.incoming.append(CancelHeard(client, cancel))

    def control(self, command: ControlCommand, argument: str, client: bytes = CLIENT) -> None:
        """Queues an operator's command for the next turn."""
        control = Control(epoch=EPOCH, id=f"{command} {argument}", command=command, argument=argument)
        self.mailbox.incoming.append(ControlHeard(client, control))

    def turn(self, count: int = 1) -> None:
        """Runs some turns. Between two of them every grammar is compiled: what is seen does not hang on time."""
        for _ in range(count):
            self.loop.turn()
            for row in self.loop._admission.waiting:
                if row.compiling is not None:
                    row.compiling.exception(timeout=30)
            self.turns += 1

    def run_until_idle(self, limit: int = 2_000) -> None:
        """Runs until no row is live."""
        self.turn()
        while self.live_ids():
            self.turn()
            assert self.turns < limit, "the loop does not come to rest"

    def live_ids(self) -> list[str]:
        """Ids of rows without a finish."""
        return [key.id for key in self.loop._roster.rows]

    @property
    def deltas(self) -> list[RowDelta]:
        """Everything told to rows, in order."""
        return [row for _, message in self.mailbox.sent if isinstance(message, Step) for row in message.rows]

    def tokens(self, id_: str) -> list[int]:
        """All tokens that a row was told."""
        return [token for delta in self.deltas if delta.id == id_ for token in unpack_ids(delta.tokens)]

    def finish(self, id_: str) -> Finish:
        """The row's one finish; fails when there is none or more than one."""
        (finish,) = [delta.finish for delta in self.deltas if delta.id == id_ and delta.finish]
        return finish
