"""Speculative decoding: never another text, fewer forwards, and only for whom it cannot change anything."""

from typing import Any

import pytest

from tests.fakes.models import fresh_model, prompt_of, tiny_model  # isort: skip  # before MLX
from tests.parity.architectures import WINDOW, empty_model, random_model  # isort: skip

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import make_prompt_cache

from engine import decode
from engine.model.draft import DraftModel
from engine.speculate import Speculator
from protocol.codec import pack_ids
from protocol.messages import Grammar, LogprobsWanted
from protocol.sampling import Sampling
from tests.fakes.loop_driver import LoopDriver, facts_of

TOKENS = 60


class Counting(nn.Module):
    """Counts its forwards; otherwise the model that it wraps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model
        self.args = model.args
        self.forwards: list[int] = []

    @property
    def layers(self) -> list[nn.Module]:
        return self.inner.layers

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        self.forwards.append(tokens.shape[1])
        return self.inner(tokens, cache=cache)


def noisy(model: nn.Module) -> nn.Module:
    """Weights a little off: a draft that is right most of the time, not always."""
    model.update(tree_map(lambda weight: weight * 0.93, model.parameters()))
    return model


DRAFTS = {"itself": tiny_model("llama"), "like it": noisy(fresh_model("llama")), "a stranger": tiny_model("qwen2")}


def driver(draft: nn.Module | None, count: int = 4, **options: Any) -> LoopDriver:
    """A loop of the llama, with this draft."""
    vocabulary_size = options.pop("draft_vocabulary", 100_000)
    speculator = None if draft is None else Speculator(DraftModel("d", draft, vocabulary_size), count, 16)
    return LoopDriver(Counting(tiny_model("llama")), facts_of(tiny_model("llama")), speculator=speculator, **options)


def alone(prompt: list[int], **changes: Any) -> list[int]:
    """What is said without a draft."""
    plain = driver(None)
    plain.submit("a", prompt, **{"max_tokens": TOKENS, **changes})
    plain.run_until_idle()
    return plain.tokens("a")


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("name", DRAFTS)
def test_a_lone_greedy_row_says_what_it_says_without(name: str, count: int) -> None:
    """Whatever the draft guesses; with prompts shorter and longer than a chunk."""
    for length in (1, 2, 7, 50):
        run = driver(DRAFTS[name], count)
        run.submit("a", prompt_of(length), max_tokens=TOKENS)
        run.run_until_idle()
        assert run.tokens("a") == alone(prompt_of(length)), (name, count, length)
        assert run.finish("a").usage.completion_tokens == TOKENS


def test_a_perfect_draft_saves_forwards() -> None:
    """Each forward of the model brings all guesses and one more; the status counts them."""
    run = driver(DRAFTS["itself"], 4)
    run.submit("a", prompt_of(7), max_tokens=TOKENS)
    run.run_until_idle()
    model = run.loop._parts.model
    assert isinstance(model, Counting)
    assert len(model.forwards) <= TOKENS // 5 + 6
    run.loop._publish()
    tokens = run.board.status().tokens
    assert tokens.drafted_total == tokens.accepted_total > 40


def test_a_wrong_draft_is_counted_as_wrong() -> None:
    """Drafted, not accepted."""
    run = driver(DRAFTS["a stranger"], 4)
    run.submit("a", prompt_of(7), max_tokens=TOKENS)
    run.run_until_idle()
    tally = run.loop._tally
    assert tally.drafted_tokens > 100
    assert tally.accepted_tokens < tally.drafted_tokens // 4


@pytest.mark.parametrize("count", [1, 3])
def test_a_row_that_gets_company_and_loses_it_says_the_same(count: int) -> None:
    """Alone, in a batch, alone again: the draft catches up."""
    run = driver(DRAFTS["like it"], count)
    run.submit("long", prompt_of(9), max_tokens=TOKENS)
    run.turn(4)
    run.submit("short", prompt_of(5, 1), max_tokens=9)
    run.turn(4)
    run.submit("other", prompt_of(30, 2), max_tokens=20)
    run.run_until_idle()
    assert run.tokens("long") == alone(prompt_of(9))
    assert run.tokens("short") == alone(prompt_of(5, 1), max_tokens=9)
    assert run.tokens("other") == alone(prompt_of(30, 2), max_tokens=20)
    assert run.loop._tally.drafted_tokens > 10


def test_ends_come_where_they_come_without() -> None:
    """A stop token among accepted guesses ends the row there; a limit is exact; a cancel ends it between steps."""
    said = alone(prompt_of(7))
    stop = said[22]
    first = said.index(stop)
    run = driver(DRAFTS["itself"], 7)
    run.submit("stopped", prompt_of(7), max_tokens=TOKENS, stop_ids=(stop,))
    run.run_until_idle()
    assert (run.tokens("stopped"), run.finish("stopped").reason) == (said[:first], "stop")
    for limit in (1, 2, 3, 8, 9):
        run = driver(DRAFTS["itself"], 7)
        run.submit("limited", prompt_of(7), max_tokens=limit)
        run.run_until_idle()
        assert (run.tokens("limited"), run.finish("limited").reason) == (said[:limit], "length")
    run = driver(DRAFTS["itself"], 4)
    run.submit("gone", prompt_of(7), max_tokens=TOKENS)
    run.turn(4)
    run.cancel("gone")
    run.turn(2)
    assert run.finish("gone").reason == "cancelled"


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": Sampling(temperature=1.0), "seed": 3},
        {"sampling": Sampling(repetition_penalty=1.5)},
        {"logprobs": LogprobsWanted(top=2)},
        {"grammar": Grammar(kind="regex", text="[ab]{30}"), "max_tokens": 20},
        {"min_tokens": 30, "stop_ids": (5, 6, 7)},
        {"draft_tokens": 0},
    ],
)
def test_rows_that_a_guess_could_change_are_not_guessed_at(changes: dict[str, Any]) -> None:
    """They decode as ever."""
    run = driver(DRAFTS["itself"])
    run.submit("a", prompt_of(7), **{"max_tokens": TOKENS, **changes})
    run.run_until_idle()
    assert run.tokens("a") == alone(prompt_of(7), **changes)
    assert run.loop._tally.drafted_tokens == 0


def test_a_request_chooses_how_many_are_guessed() -> None:
    """Over the engine's own number."""
    run = driver(DRAFTS["itself"], 1)
    run.submit("a", prompt_of(7), max_tokens=TOKENS, draft_tokens=9)
    run.run_until_idle()
    assert run.loop._tally.drafted_tokens / 9 <= TOKENS / 10 + 1
    assert run.tokens("a") == alone(prompt_of(7))


def test_tokens_that_the_draft_cannot_read_end_the_guessing() -> None:
    """A smaller vocabulary costs speed, not the row."""
    run = driver(DRAFTS["itself"], 4, draft_vocabulary=40)
    run.submit("a", prompt_of(7), max_tokens=TOKENS)
    run.run_until_idle()
    assert run.tokens("a") == alone(prompt_of(7))


def test_a_replayed_row_goes_on() -> None:
    """After tokens that an earlier engine delivered."""
    said = alone(prompt_of(7))
    run = driver(DRAFTS["like it"], 3)
    run.submit("a", prompt_of(7), max_tokens=TOKENS, generated=pack_ids(said[:20]))
    run.run_until_idle()
    assert run.tokens("a") == said[20:]


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_a_sliding_window_is_guessed_at_only_while_it_has_room(count: int) -> None:
    """A window that is full forgets what a wrong guess overwrote: at every length up to and past the wrap."""
    served = random_model("gemma3_text")
    for length in range(1, 10):
        said = []
        for draft in (None, DRAFTS["a stranger"]):
            speculator = None if draft is None else Speculator(DraftModel("d", draft, 256), count, 16)
            run = LoopDriver(served, facts_of(served), speculator=speculator)
            run.submit("a", prompt_of(length), max_tokens=20)
            run.run_until_idle()
            said.append(run.tokens("a"))
        assert said[1] == said[0], (length, count)


def test_a_draft_with_a_window_is_given_up_before_it_forgets() -> None:
    """Rejected guesses never stay in its context."""
    speculator = Speculator(DraftModel("d", random_model("gemma3_text"), 256), 4, 16)
    run = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama")), speculator=speculator)
    run.submit("a", prompt_of(5), max_tokens=TOKENS)
    run.turn()
    offsets: set[int] = set()
    while run.live_ids():
        offsets |= {cache.offset for cache in speculator._caches if hasattr(cache, "max_size")}
        run.turn()
    assert run.tokens("a") == alone(prompt_of(5))
    assert offsets
    assert offsets <= set(range(8))


@pytest.mark.parametrize("reason", ["length", "cancelled"])
def test_nothing_is_kept_of_a_row_that_has_ended(reason: str) -> None:
    """The draft's caches are as large as the row was long: an idle engine does not hold them."""
    run = driver(DRAFTS["itself"], 4)
    run.submit("a", prompt_of(40), max_tokens=30)
    run.turn(6)
    speculator = run.loop._parts.speculator
    assert speculator is not None
    assert sum(cache.nbytes for cache in speculator._caches) > 0
    if reason == "cancelled":
        run.cancel("a")
    run.run_until_idle()
    assert run.finish("a").reason == reason
    assert (speculator._row, speculator._caches) == (None, [])


class Watched(list[int]):
    """Tokens that count how many of them are taken out."""

    taken = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.taken += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:
        for token in super().__iter__():
            self.taken += 1
            yield token

    def __add__(self, other: Any) -> Any:
        self.taken += len(self)
        return super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        self.taken += len(self)
        return other + list(self)


def test_a_step_looks_at_no_token_that_was_read_before() -> None:
    """However long the row is: what a step takes from its tokens is what the draft has not read."""
    run = driver(DRAFTS["like it"], 4)
    run.submit("a", prompt_of(200), max_tokens=TOKENS)
    run.turn(15)
    (row,) = run.loop._roster.rows.values()
    row.to_prefill, row.told = Watched(row.to_prefill), Watched(row.told)
    told = len(row.told)
    before = run.loop._tally.drafted_tokens
    run.turn(5)
    assert run.loop._tally.drafted_tokens == before + 5 * 4
    assert row.to_prefill.taken == 0
    assert row.told.taken <= 2 * (len(row.told) - told) + 2 * 5


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12])
def test_a_chunked_draft_guesses_what_it_would_without_its_caches(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses that were taken back across the end of a chunk leave nothing out of place."""
    model = empty_model("llama4")
    model.load_weights([(name, weight * 0.9) for name, weight in _weights(random_model("llama4"))])
    original = decode.draft
    read: list[int] = []
    drafted: list[int] = []

    def recording(draft: Any, caches: Any, unread: list[int], wanted: int, vocabulary_size: int) -> list[int]:
        read[caches[0].offset :] = unread
        guesses = original(draft, caches, unread, wanted, vocabulary_size)
        assert original(draft, make_prompt_cache(draft), read, wanted, vocabulary_size) == guesses, len(read)
        # As far as they are right the draft goes on from its own guesses.
        read.extend(guesses[:-1])
        drafted.append(wanted)
        return guesses

    monkeypatch.setattr(decode, "draft", recording)
    served = random_model("llama4")
    run = LoopDriver(served, facts_of(served), speculator=Speculator(DraftModel("d", model, 256), count, 16))
    run.submit("a", prompt_of(11), max_tokens=TOKENS)
    run.run_until_idle()
    tally = run.loop._tally
    assert len(read) > 6 * WINDOW
    assert max(drafted) == min(count, WINDOW)
    assert 0 < tally.accepted_tokens < tally.drafted_tokens
    plain = LoopDriver(served, facts_of(served))
    plain.submit("a", prompt_of(11), max_tokens=TOKENS)
    plain.run_until_idle()
    assert run.tokens("a") == plain.tokens("a")


@pytest.mark.parametrize(("unread", "forwards"), [(2, [2, 1]), (100, [99, 1, 1])])
def test_a_draft_that_catches_up_has_few_logits(unread: int, forwards: list[int]) -> None:
    """Those of a whole chunk over the vocabulary would take memory that nobody has counted."""
    draft = Counting(tiny_model("llama"))
    caches = make_prompt_cache(draft)
    assert decode.draft(draft, caches, prompt_of(unread), 2, 100_000) == alone(prompt_of(unread), max_tokens=2)
    assert draft.forwards == forwards


def _weights(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return flat
