"""A row: one Submit in the engine, from the mailbox to its one finish."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from engine.errors import EngineError
from engine.model.adapters import Adapter
from engine.prefix.use import PrefixUse
from engine.sampling.exclusions import Exclusions, exclusions_of
from engine.sampling.grammar import CompiledGrammar, RowGrammar, row_grammar
from protocol.codec import pack_ids, unpack_ids
from protocol.errors import ErrorCode
from protocol.messages import Finish, FinishReason, ModelFacts, Submit, SubmitId, Timings, TokenLogprobs, Usage

# Prompt tokens whose logits over the whole vocabulary are held at once.
PROMPT_LOGITS_TOKENS: Final = 128


class UnreadLogprobs(Protocol):
    """A row's log-probabilities of one sample, perhaps still on their way from the device."""

    def read(self) -> TokenLogprobs:
        """Waits for them."""
        ...


class RowKey(NamedTuple):
    """A client may choose any id; only the pair is unique. client: ROUTER identity."""

    client: bytes
    id: SubmitId


@dataclass(slots=True, eq=False)
class Row:
    """One choice being generated.

    to_prefill: prompt and replayed tokens. drawn: samples launched, which leads `emitted` (tokens read)
    by at most one. limit: tokens to emit at most. caches: one per layer until the row joins a batch.
    has_unread: the batch register holds a token of this row that nobody has read. decodes_alone: it can share no
    step, so nobody else is live beside it. prefills_alone: a chunk that it shared has failed. adapter: on the model
    in its forwards. told: tokens emitted here, without replayed ones. unread_logprobs: of samples launched and not
    read, oldest first. prompt_logprobs: of the prompt's tokens from its second on, as far as it is prefilled, if
    asked for. compiling: the grammar that the row waits for; then it is its grammar. progress_at: when it last said
    how far its prompt is computed. lead_tokens: computed of its prompt here, less those of later rows that went before
    it meanwhile. ending: its finish, once it has ended. replayed: the tokens of the reply among to_prefill, u32
    little-endian. preemptions: how often it gave up its caches; counted_cached_tokens: what its client is told since.
    is_prompt_told: its prompt's log-probabilities are.
    """

    key: RowKey
    submit: Submit
    to_prefill: list[int]
    prompt_tokens: int
    limit: int
    stop_ids: frozenset[int]
    submitted_at: float
    deadline_at: float | None
    drawn: int = 0
    emitted: int = 0
    prefilled: int = 0
    caches: list[Any] | None = None
    has_unread: bool = False
    decodes_alone: bool = False
    prefills_alone: bool = False
    adapter: Adapter | None = None
    prefill_began_at: float | None = None
    first_token_at: float | None = None
    progress_at: float = 0.0
    lead_tokens: int = 0
    compiling: CompiledGrammar | None = None
    grammar: RowGrammar | None = None
    exclusions: Exclusions | None = None
    told: list[int] = field(default_factory=list[int])
    unread_logprobs: deque[UnreadLogprobs] = field(default_factory=deque[UnreadLogprobs])
    prompt_logprobs: list[UnreadLogprobs] = field(default_factory=list[UnreadLogprobs])
    prefix: PrefixUse = field(default_factory=PrefixUse)
    ending: Finish | None = None
    replayed: bytes = b""
    preemptions: int = 0
    counted_cached_tokens: int | None = None
    is_prompt_told: bool = False

    @property
    def remaining_prefill_tokens(self) -> int:
        """Tokens to forward before the row can decode, the last prompt token included; an estimate until it begins."""
        return len(self.to_prefill) - max(self.prefilled, self.prefix.expected_tokens)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed for this row, whatever was computed again."""
        if self.counted_cached_tokens is not None:
            return self.counted_cached_tokens
        return min(self.prefix.taken_tokens, self.prompt_tokens)

    @property
    def is_half_way(self) -> bool:
        """Whether some of its own chunks are computed, and not all."""
        return self.prefilled > self.prefix.taken_tokens

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether its prompt's log-probabilities are to be told before its first token."""
        return self.submit.logprobs is not None and self.submit.logprobs.of_prompt and not self.is_prompt_told

    @property
    def must_prefill_alone(self) -> bool:
        """Whether its prompt cannot be part of a chunk of several."""
        return self.prefills_alone or self.wants_prompt_logprobs

    @property
    def is_last_token_pending(self) -> bool:
        """The unread token ends the row whatever it is, so a further sample would be thrown away."""
        return self.has_unread and self.emitted + 1 >= self.limit

    @property
    def known_count(self) -> int:
        """How many of its tokens the host knows: those of the prompt, replayed ones, and those emitted here."""
        return len(self.to_prefill) + len(self.told)

    def known_from(self, start: int, stop: int | None = None) -> list[int]:
        """The known tokens start:stop, without a look at any other."""
        prefilled = len(self.to_prefill)
        stop = self.known_count if stop is None else stop
        return self.to_prefill[start:stop] + self.told[max(0, start - prefilled) : max(0, stop - prefilled)]

    def is_sibling_of(self, other: "Row") -> bool:
        """Whether both are choices of one request that forward the same tokens first."""
        return (
            self.submit.group == other.submit.group
            and self.key.client == other.key.client
            and self.adapter is other.adapter
            and self.submit.logprobs == other.submit.logprobs
            and self.is_prompt_told == other.is_prompt_told
            and self.to_prefill == other.to_prefill
        )

    def start_over(self) -> None:
        """A row whose caches are gone: what it has said is prefilled with its prompt, then it goes on as if nothing
        had been. All of its tokens are read.
        """
        assert not self.has_unread
        if self.prefill_began_at is not None:
            self.counted_cached_tokens = self.cached_tokens
        self.to_prefill = [*self.to_prefill, *self.told]
        self.replayed += pack_ids(self.told)
        self.told = []
        self.caches, self.prefilled, self.lead_tokens = None, 0, 0
        self.prompt_logprobs.clear()
        self.prefix = PrefixUse(keep_tokens=self.prefix.keep_tokens)
        self.preemptions += 1

    def first_chunk_tokens(self, chunk_tokens: int) -> int:
        """Tokens of the first chunk that the row computes, or did before it started over.

        What follows a chunk may read it otherwise than it read itself: so it is the same one again.
        """
        reads_logits = self.submit.logprobs is not None and self.submit.logprobs.of_prompt
        most = min(chunk_tokens, PROMPT_LOGITS_TOKENS) if reads_logits else chunk_tokens
        return min(most, max(1, self.prompt_tokens - 1), len(self.to_prefill) - 1)

    def tokens_before_input(self, count: int) -> list[int]:
        """At most count last tokens before the one that is forwarded next, replayed and prompt tokens among them.

        That one is still unread, or the last that the host knows.
        """
        known = self.to_prefill[-count - 1 :] + self.told[-count - 1 :]
        before = known if self.has_unread else known[:-1]
        return before[-count:] if count else []

    def possible(self, tokens: list[int]) -> list[int]:
        """So many tokens that are forced to follow as its own settings let through."""
        if self.exclusions is None:
            return tokens
        return self.exclusions.taken(tokens, self._last_tokens(self.exclusions.reach))

    def is_dead_end(self, token: int) -> bool:
        """Whether this token, which was sampled next, shows that none was possible.

        Nobody else can tell: of logits that are all -inf the sampler makes any token.
        """
        if self.exclusions is None:
            return False
        if self.exclusions.excludes(token, self._last_tokens(self.exclusions.reach)):
            return True
        if self.grammar is not None:
            return not self.grammar.can_take(token)
        return token in self.stop_ids and self.emitted < self.submit.min_tokens

    @property
    def dead_end(self) -> EngineError:
        """EngineError(INVALID_REQUEST) with what left it no token."""
        names = [] if self.exclusions is None else self.exclusions.names
        names += [*(["the grammar"] if self.grammar is not None else [])]
        names += [*(["min_tokens"] if self.emitted < self.submit.min_tokens else [])]
        return EngineError(
            ErrorCode.INVALID_REQUEST,
            f"after {self.emitted} tokens of the reply no other may follow: {' and '.join(names)} "
            "leave none; allow more",
        )

    def _last_tokens(self, count: int) -> list[int]:
        """At most count tokens that the host knows, replayed and prompt tokens among them."""
        return (self.to_prefill[-count:] + self.told[-count:])[-count:] if count else []

    def follow_grammar(self, eos_ids: frozenset[int]) -> None:
        """Takes up the compiled grammar, whose ends of text are ends of the row. Raises EngineError if refused."""
        assert self.compiling is not None
        self.grammar = row_grammar(self.compiling, self.to_prefill[self.prompt_tokens :])
        self.compiling = None
        self.stop_ids |= eos_ids

    def finish(self, reason: FinishReason, now: float, stop_id: int | None = None) -> Finish:
        """The row's one terminal word. The ending stop token counts as a completion token."""
        return Finish(
            reason=reason,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.emitted + (1 if stop_id is not None else 0),
                cached_tokens=self.cached_tokens,
            ),
            timings=self._timings(now),
            stop_id=stop_id,
        )

    def _timings(self, now: float) -> Timings:
        prefill_began_at = self.prefill_began_at or now
        first_token_at = self.first_token_at or now
        return Timings(
            queue_ms=(prefill_began_at - self.submitted_at) * 1e3,
            prefill_ms=(first_token_at - prefill_began_at) * 1e3,
            decode_ms=(now - first_token_at) * 1e3,
        )


def make_row(key: RowKey, submit: Submit, facts: ModelFacts, now: float) -> Row:
    """A waiting row for a Submit that admission has found valid. now: monotonic seconds."""
    prompt = unpack_ids(submit.prompt.ids)
    generated = unpack_ids(submit.generated)
    room = facts.context_length - len(prompt)
    stop_ids = set(submit.stop_ids)
    if not submit.ignore_eos:
        stop_ids.update(facts.eos_ids)
    return Row(
        key=key,
        submit=submit,
        to_prefill=prompt + generated,
        prompt_tokens=len(prompt),
        limit=room if submit.max_tokens is None else min(submit.max_tokens, room),
        stop_ids=frozenset(stop_ids),
        submitted_at=now,
        deadline_at=None if submit.deadline_ms is None else now + submit.deadline_ms / 1e3,
        drawn=len(generated),
        emitted=len(generated),
        exclusions=exclusions_of(submit.sampling),
        replayed=submit.generated,
    )
