"""Ways to decode B rows together, each as a runner with one step in flight: what `bench.step` times.

Owns how our engine and mlx-lm are driven in process; the one place to change when their seams change.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import engine.openblas  # noqa: F401  # before MLX

# isort: split
import mlx.core as mx
import msgspec
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from engine import decode, prefill
from engine.batch import Batch, Group
from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.loop import EngineLoop
from engine.mailbox import Client, Heard, SubmitHeard
from engine.memory_plan import MemoryPlan, footprint_of
from engine.model.adapters import Adapters
from engine.mounts import Mounter
from engine.parts import LoopParts
from engine.prefix.keeper import PrefixKeeper, RowCaches
from engine.prefix.store import StoreLimits
from engine.row import Row, RowKey, make_row
from engine.sampling.grammar import GrammarCompiler, GrammarTokenizer
from engine.sampling.masks import GrammarMasks
from engine.status import StatusBoard
from protocol.codec import encode, pack_ids
from protocol.messages import (
    AnyFromEngine,
    Batching,
    BosRule,
    Epoch,
    GenerationDefaults,
    Grammar,
    Limits,
    LogprobsWanted,
    ModelFacts,
    Step,
    Submit,
    SubmitId,
    TokenPrompt,
)
from protocol.sampling import Sampling

PROMPT_TOKENS: Final = 32
CHUNK_TOKENS: Final = 128
_ENDLESS_TOKENS: Final = 1_000_000
_LEAST_ID: Final = 32
_EPOCH: Final = Epoch("bench")
_NO_GRAMMAR: Final = GrammarTokenizer(None, "these runners have no tokenizer")


class Wanted(NamedTuple):
    """What one row asks of the sampler."""

    sampling: Sampling = Sampling()
    logprobs: LogprobsWanted | None = None


class Runner(Protocol):
    """Decodes a fixed batch. After `settle` nothing is left on the device."""

    name: str

    def step(self) -> None:
        """Launches one step for all rows and reads the one before."""
        ...

    def settle(self) -> None:
        """Waits for what is launched."""
        ...


class BareLoop:
    """The least that decoding can be: forward, argmax, read; mlx-lm's KVCache with B unpadded rows."""

    name = "bare"

    def __init__(self, model: nn.Module, prompts: list[list[int]]) -> None:
        self._model = model
        self.caches = make_prompt_cache(model)
        tokens = mx.array(prompts)
        model(tokens[:, :-1], cache=self.caches)
        mx.eval([cache.state[:2] for cache in self.caches])
        self.register = mx.argmax(model(tokens[:, -1:], cache=self.caches)[:, -1, :], axis=-1)
        mx.eval(self.register)

    def step(self) -> None:
        """One forward and one argmax; the tokens of the step before become Python ints."""
        launched = mx.argmax(self._model(self.register[:, None], cache=self.caches)[:, -1, :], axis=-1)
        mx.async_eval(launched)
        self.register.tolist()
        self.register = launched

    def settle(self) -> None:
        """Waits for the register."""
        mx.eval(self.register)


@dataclass(frozen=True, slots=True)
class DecodeSetup:
    """weights_bytes: as the cost rule for groups sees them; None: the model's own."""

    name: str = "decode"
    cache_plan: CachePlan = DEFAULT_PLAN
    weights_bytes: int | None = None


class OurDecode:
    """Our decode step alone: launch_forward, launch_sample, read on each group."""

    name = "decode"

    def __init__(
        self,
        model: nn.Module,
        prompts: list[list[int]],
        wanted: Sequence[Wanted] = (),
        *,
        setup: DecodeSetup = DecodeSetup(),
    ) -> None:
        self.name = setup.name
        self._model = model
        self._plan = setup.cache_plan
        kinds = self._plan.kinds(model)
        self._batch = Batch(kinds, setup.weights_bytes or _weights_bytes(model))
        rows = [
            make_row(RowKey(b"bench", submit.id), submit, _facts(model), 0.0) for submit in _submits(prompts, wanted)
        ]
        self._batch.join([Group.of_one(kinds, row, self._prefilled(row)) for row in rows])

    def step(self) -> None:
        """What the loop does between two turns, without telling anyone."""
        for group in self._batch.groups:
            register = group.register
            group.register = decode.launch_sample(decode.launch_forward(self._model, group), group)
            decode.read(register)

    def settle(self) -> None:
        """Waits for the registers."""
        mx.eval([group.register for group in self._batch.groups])

    @property
    def kv_bytes(self) -> int:
        """Of all rows' caches."""
        return self._batch.allocated_bytes

    @property
    def group_count(self) -> int:
        """Into which the rows were put."""
        return len(self._batch.groups)

    def _prefilled(self, row: Row) -> int:
        row.caches = make_prompt_cache(self._model)
        while row.remaining_prefill_tokens > 1:
            prefill.launch_chunk(self._model, row, CHUNK_TOKENS)
            prefill.wait_for_chunk(row.caches)
            prefill.quantize(self._plan, row.caches, row.prefilled)
        token = prefill.first_token(self._model, row, GrammarMasks(_NO_GRAMMAR))
        prefill.quantize(self._plan, row.caches, row.prefilled)
        return token


@dataclass(frozen=True, slots=True)
class Constrained:
    """Every so many-th row follows this grammar; it must have no end."""

    tokenizer: GrammarTokenizer
    grammar: Grammar
    every: int


class OurTurn:
    """A whole turn of our loop: hear, decode, take each token, tell (encoded, then dropped).

    All prompts prefill as one chunk, so that no row is padded, as none is in the other runners.
    """

    name = "turn"

    def __init__(
        self,
        model: nn.Module,
        prompts: list[list[int]],
        constrained: Constrained | None = None,
        *,
        wanted: Sequence[Wanted] = (),
        chunk_prompts: int | None = None,
    ) -> None:
        submits = _submits(prompts, wanted)
        grammars = GrammarCompiler(_NO_GRAMMAR if constrained is None else constrained.tokenizer)
        if constrained is not None:
            # Compiled before they are sent, so that constrained rows sit among the free ones.
            grammars.start(constrained.grammar).result()
            for index in range(0, len(submits), constrained.every):
                submits[index] = msgspec.structs.replace(submits[index], grammar=constrained.grammar)
        self._mailbox = _DeafMailbox(submits)
        chunk_tokens = PROMPT_TOKENS * (chunk_prompts or len(prompts))
        self._loop = EngineLoop(loop_parts(model, self._mailbox, chunk_tokens, grammars))
        while self._mailbox.largest_step_rows < len(prompts):
            self._loop.turn()

    def step(self) -> None:
        """One turn; every row is told one token."""
        self._loop.turn()

    def settle(self) -> None:
        """Waits for all that is launched."""
        mx.synchronize()


class StaggeredTurn(OurTurn):
    """The same where a chunk holds one prompt: rows join at different steps, so their columns differ.

    They then need a mask and offsets of their own, as rows have that do not arrive together.
    """

    name = "staggered"

    def __init__(
        self,
        model: nn.Module,
        prompts: list[list[int]],
        constrained: Constrained | None = None,
        *,
        wanted: Sequence[Wanted] = (),
    ) -> None:
        super().__init__(model, prompts, constrained, wanted=wanted, chunk_prompts=1)


class LibraryGenerator:
    """mlx-lm's BatchGenerator, with room for all rows at once."""

    name = "generator"

    def __init__(self, model: nn.Module, prompts: list[list[int]], wanted: Sequence[Wanted] = ()) -> None:
        rows = len(prompts)
        self._generator = BatchGenerator(
            model, max_tokens=_ENDLESS_TOKENS, completion_batch_size=rows, prefill_batch_size=rows
        )
        self._generator.insert(prompts, samplers=[_library_sampler(each.sampling) for each in wanted] or None)
        while len(self._generator.next_generated()) < rows:
            pass

    def step(self) -> None:
        """One step of all rows."""
        self._generator.next_generated()

    def settle(self) -> None:
        """Waits for the generator's own stream."""
        mx.synchronize(self._generator.stream)


RUNNERS: Final = (BareLoop, OurDecode, OurTurn, LibraryGenerator)


def loop_parts(
    model: Any, mailbox: Any, chunk_tokens: int, grammars: GrammarCompiler | None = None, ceiling_bytes: int = 0
) -> LoopParts:
    """Of a loop on a model and a stand-in for its mailbox. ceiling_bytes: of the prefix cache, 0 for none."""
    adapters, facts = Adapters(model), _facts(model)
    caches = RowCaches(DEFAULT_PLAN.kinds(model), chunk_tokens, facts.context_length)
    return LoopParts(
        model=model,
        adapters=adapters,
        mounter=Mounter(adapters, None, ""),
        mailbox=mailbox,
        board=StatusBoard(_EPOCH, 0),
        facts=facts,
        stop=threading.Event(),
        chunk_tokens=chunk_tokens,
        grace_s=0.0,
        weights_bytes=_weights_bytes(model),
        grammars=grammars or GrammarCompiler(_NO_GRAMMAR),
        prefixes=PrefixKeeper(StoreLimits(ceiling_bytes), adapters, caches),
        memory=MemoryPlan(
            budget_bytes=1 << 50,
            footprint=footprint_of(model, DEFAULT_PLAN, chunk_tokens),
            vocabulary_size=facts.vocabulary_size,
        ),
    )


def fixed_prompts(rows: int, vocabulary_size: int, tokens: int = PROMPT_TOKENS) -> list[list[int]]:
    """Different prompts of so many ids each, the same in every run."""
    random = np.random.default_rng(7)
    return random.integers(_LEAST_ID, vocabulary_size, (rows, tokens)).tolist()


class _DeafMailbox:
    """Hands over one Submit per prompt, then nothing; encodes what it is told, and forgets it."""

    def __init__(self, submits: list[Submit]) -> None:
        self._incoming: list[Heard] = [SubmitHeard(b"bench", submit) for submit in submits]
        self.clients: dict[bytes, Client] = {}
        self.malformed_frames = 0
        self.stale_messages = 0
        self.largest_step_rows = 0

    def hear(self, now: float, wait_ms: int) -> list[Heard]:
        """All of it at the first call."""
        heard, self._incoming = self._incoming, []
        return heard

    def tell(self, client: bytes, message: AnyFromEngine) -> None:
        """Costs what encoding costs."""
        encode(message)

    def tell_step(self, client: bytes, step: Step) -> None:
        """The same."""
        encode(step)
        self.largest_step_rows = max(self.largest_step_rows, len(step.rows))

    def lose(self, client: bytes) -> None:
        """Nobody can be lost who is there to the end: what led here ends the bench."""
        raise AssertionError(f"{client!r} could not be told")


def _library_sampler(sampling: Sampling) -> Callable[[mx.array], mx.array]:
    return make_sampler(sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k)


def _submits(prompts: list[list[int]], wanted: Sequence[Wanted]) -> list[Submit]:
    """One a prompt; greedy when nothing is wanted."""
    return [
        Submit(
            epoch=_EPOCH,
            id=SubmitId(f"row-{index}"),
            group=f"row-{index}",
            model="bench",
            prompt=TokenPrompt(ids=pack_ids(prompt)),
            ignore_eos=True,
            sampling=each.sampling,
            logprobs=each.logprobs,
            seed=index,
        )
        for index, (prompt, each) in enumerate(zip(prompts, wanted or [Wanted()] * len(prompts), strict=True))
    ]


def vocabulary_size(model: Any) -> int:
    """Also of a model whose arguments are nested."""
    return getattr(model.args, "text_config", model.args).vocab_size


def _weights_bytes(model: nn.Module) -> int:
    flat: list[tuple[str, mx.array]] = tree_flatten(model.parameters())  # pyright: ignore[reportAssignmentType]  # no dict
    return sum(weight.nbytes for _, weight in flat)


def _facts(model: Any) -> ModelFacts:
    return ModelFacts(
        id="bench",
        path="",
        context_length=_ENDLESS_TOKENS,
        vocabulary_size=vocabulary_size(model),
        eos_ids=(),
        bos=BosRule(),
        defaults=GenerationDefaults(),
        batching=Batching(mode="batch", reason=""),
        limits=Limits(max_rows=1_024, max_waiting=1_024, max_frame_bytes=1 << 23),
        dtype="",
        device="",
    )
