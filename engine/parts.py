"""What an engine loop is made of, put together once at start."""

import threading
from dataclasses import dataclass

import mlx.nn as nn

from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.mailbox import Mailbox
from engine.memory_plan import MemoryPlan
from engine.model.adapters import Adapters
from engine.mounts import Mounter
from engine.prefix.keeper import PrefixKeeper
from engine.sampling.grammar import GrammarCompiler
from engine.speculate import Speculator
from engine.status import StatusBoard
from protocol.messages import ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """What a loop is made of. chunk_tokens: of one prefill chunk. prompt_concurrency: prompts in it at most.

    grace_s: how long live rows may go on once `stop` is set. memory: the budget, and what a row takes of it.
    """

    model: nn.Module
    adapters: Adapters
    mounter: Mounter
    mailbox: Mailbox
    board: StatusBoard
    facts: ModelFacts
    stop: threading.Event
    chunk_tokens: int
    grace_s: float
    weights_bytes: int
    grammars: GrammarCompiler
    prefixes: PrefixKeeper
    memory: MemoryPlan
    cache_plan: CachePlan = DEFAULT_PLAN
    speculator: Speculator | None = None
    prompt_concurrency: int | None = None
