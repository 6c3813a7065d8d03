"""Tokens that a row's own settings exclude: known to the host, not jumped over, and no garbage where none is left."""

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.exclusions import Exclusions, exclusions_of
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import Finish, Grammar
from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import row_of, tokens_of
from tests.fakes.grammars import EOS_ID, text_of, token_ids
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

_WORDS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
CONSTANT = Grammar(kind="choice", text='["0123456789"]')


def exclusions(**settings: Any) -> Exclusions:
    """Of settings that exclude something."""
    found = exclusions_of(Sampling(**settings))
    assert found is not None
    return found


def test_most_rows_exclude_nothing() -> None:
    """And cost nothing."""
    assert exclusions_of(Sampling(temperature=1.0, top_k=3)) is None


@pytest.mark.parametrize(
    ("before", "token", "expected"),
    [([8, 9], 0, True), ([9], 0, False), ([9, 8], 0, False), ([], 0, False), ([], 5, True), ([8, 9], 1, False)],
)
def test_words_are_excluded_where_they_would_be_whole(before: list[int], token: int, expected: bool) -> None:
    """A word of one id always, a longer one behind its beginning."""
    assert exclusions(bad_words=((8, 9, 0), (5,), (1, 1))).excludes(token, before) is expected


@settings(max_examples=40, deadline=None)
@given(_WORDS, st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sets(st.integers(1, 7)))
def test_the_host_excludes_what_the_device_excludes(
    words: tuple[tuple[int, ...], ...], prompt: list[int], allowed: set[int]
) -> None:
    """A token that stands out is sampled, unless it is excluded: then another is, or 0 where nothing is possible."""
    sampling = Sampling(bad_words=words, allowed_ids=tuple(sorted(allowed)))
    known = exclusions_of(sampling)
    for token in range(1, 8):
        logits = mx.zeros((1, 64))
        logits[0, token] = 1.0
        is_excluded = known is not None and known.excludes(token, prompt)
        assert (tokens_of([row_of(sampling, prompt=tuple(prompt))], logits) == [token]) is not is_excluded


def test_what_may_follow_of_forced_tokens() -> None:
    """As far as none completes a bad word, also one that began before them."""
    known = exclusions(bad_words=((1, 2, 3), (7,)))
    assert known.taken([3, 4], [1, 2]) == []
    assert known.taken([4, 1, 2, 3], [1, 2]) == [4, 1, 2]
    assert known.taken([4, 5, 7, 8], []) == [4, 5]
    assert exclusions(allowed_ids=(4, 5)).taken([4, 5, 4], []) == [4, 5, 4]


def new_driver() -> LoopDriver:
    """A loop with the tiny tokenizer's EOS."""
    return LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(EOS_ID,)))


def ended(neighbours: int = 0, **changes: Any) -> tuple[list[int], Finish]:
    """A row's tokens and finish, beside so many free rows, whose tokens do not change."""
    driver = new_driver()
    for index in range(neighbours):
        driver.submit(f"free{index}", prompt_of(6, index), max_tokens=30, ignore_eos=True)
    driver.submit("a", prompt_of(7), **{"max_tokens": 60} | changes)
    driver.run_until_idle()
    for index in range(neighbours):
        assert driver.tokens(f"free{index}") == solo_tokens(tiny_model("llama"), prompt_of(6, index), 30)
    return driver.tokens("a"), driver.finish("a")


@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forced_tokens_that_are_excluded_are_not_taken(neighbours: int, temperature: float) -> None:
    """Alone, where it would jump over them, as among others: what came before is told, then the row fails."""
    forced = token_ids("0123456789")
    cases: list[dict[str, Any]] = [{"bad_words": (tuple(forced[4:6]),)}, {"allowed_ids": tuple(forced[:5])}]
    for case in cases:
        sampling = Sampling(temperature=temperature, **case)
        tokens, finish = ended(neighbours, grammar=CONSTANT, sampling=sampling)
        assert tokens == forced[:5]
        assert (finish.reason, finish.code) == ("error", ErrorCode.INVALID_REQUEST)
        name = "bad words" if "bad_words" in case else "allowed token ids"
        assert finish.message.startswith(f"after 5 tokens of the reply no other may follow: the {name} and the grammar")


@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_that_meets_no_allowed_token_fails_with_its_first(neighbours: int, temperature: float) -> None:
    """Nothing was told, so the client still gets a 400."""
    sampling = Sampling(temperature=temperature, allowed_ids=tuple(token_ids("xyz")))
    tokens, finish = ended(neighbours, grammar=Grammar(kind="regex", text="[0-9]+"), sampling=sampling)
    assert (tokens, finish.reason, finish.code) == ([], "error", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_ends_where_its_grammar_may(neighbours: int, temperature: float) -> None:
    """What is there is whole, and no allowed token goes on with it: a stop."""
    (letter,) = token_ids("a")
    sampling = Sampling(temperature=temperature, allowed_ids=(letter,))
    tokens, finish = ended(neighbours, grammar=Grammar(kind="regex", text="aab?c?"), sampling=sampling)
    assert (text_of(tokens), finish.reason, finish.stop_id) == ("aa", "stop", None)


@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_free_row_without_a_token_fails(neighbours: int, temperature: float) -> None:
    """One id may come, and never twice: after the first no token is left, and no garbage comes instead."""
    sampling = Sampling(temperature=temperature, allowed_ids=(9,), bad_words=((9, 9),))
    tokens, finish = ended(neighbours, sampling=sampling)
    assert (tokens, finish.reason, finish.code) == ([9], "error", ErrorCode.INVALID_REQUEST)
    assert "the allowed token ids and the bad words leave none" in finish.message
    held, finish = ended(neighbours, sampling=Sampling(temperature=temperature, allowed_ids=(EOS_ID,)), min_tokens=3)
    assert (held, finish.reason) == ([], "error")
    assert "min_tokens" in finish.message
    stopped, finish = ended(neighbours, sampling=Sampling(temperature=temperature, allowed_ids=(EOS_ID,)))
    assert (stopped, finish.reason, finish.stop_id) == ([], "stop", EOS_ID)


def test_a_replay_knows_the_words_before_it() -> None:
    """Of the tokens delivered by an earlier attempt, too."""
    sampling = Sampling(allowed_ids=(9, 10), bad_words=((9, 10),))
    tokens, finish = ended(sampling=sampling, generated=pack_ids([9]), attempt=1, max_tokens=6)
    assert (tokens, finish.reason) == ([9] * 5, "length")
