"""Masks let through what a row's grammar allows, after the token that is still to be told, at any width of logits."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.row import Row, RowKey, make_row
from engine.sampling.grammar import RowGrammar
from engine.sampling.masks import LEAST_TOGETHER, GrammarMasks
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from protocol.sampling import Sampling
from tests.fakes.grammars import EOS_ID, VOCABULARY_SIZE, compiled, grammar_tokenizer, token_ids
from tests.fakes.loop_driver import facts_of
from tests.fakes.models import tiny_model

DIGITS = frozenset(token_ids("0123456789"))


def row_of(pattern: str, taken: str = "", **changes: Any) -> Row:
    """A row in the grammar of a regular expression."""
    prompt = TokenPrompt(ids=pack_ids([1]))
    submit = Submit(epoch="e", id=SubmitId("r"), group="r", model="model", prompt=prompt, **changes)
    row = make_row(RowKey(b"c", submit.id), submit, facts_of(tiny_model("llama"), eos_ids=(EOS_ID,)), 0.0)
    row.grammar = compiled("regex", pattern)
    for token in token_ids(taken):
        row.grammar.take(token)
    return row


def allowed(logits: mx.array) -> list[frozenset[int]]:
    """Ids of each row that are not impossible."""
    return [frozenset(np.flatnonzero(line > -np.inf).tolist()) for line in np.array(logits.astype(mx.float32))]


def laid(rows: list[Row], logits: mx.array, unread: list[int | None] | None = None) -> mx.array:
    """Logits under the rows' masks."""
    masks = GrammarMasks(grammar_tokenizer(), threads=2 if len(rows) >= LEAST_TOGETHER else 1)
    return masks.laid_over(logits, masks.start(rows, unread or [None] * len(rows)).result())


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
@pytest.mark.parametrize("width", [VOCABULARY_SIZE, VOCABULARY_SIZE + 37, VOCABULARY_SIZE - 100])
def test_what_a_grammar_allows_keeps_its_value(width: int, dtype: mx.Dtype) -> None:
    """All else is impossible, also beyond the tokenizer; the logits' type stays."""
    rows = [row_of("[0-9]+"), row_of("[0-9]+", "7")]
    logits = mx.random.normal((2, width), key=mx.random.key(1)).astype(dtype)
    before = np.array(logits.astype(mx.float32))
    masked = laid(rows, logits)
    assert masked.dtype == dtype
    digits = frozenset(id_ for id_ in DIGITS if id_ < width)
    assert allowed(masked) == [digits, digits | {EOS_ID}]
    after = np.array(masked.astype(mx.float32))
    assert np.array_equal(after[after > -np.inf], before[after > -np.inf])


@pytest.mark.parametrize("count", [1, 3, 5])
def test_each_row_follows_its_own_grammar(count: int) -> None:
    """One by one, and together, which is filled in another way."""
    rows = [row_of("[0-9]+"), row_of("ab", "a"), row_of("[0-9]", "3"), row_of("xy"), row_of("[0-9]{2}", "3")][:count]
    expected = [DIGITS, frozenset(token_ids("b")), frozenset({EOS_ID}), None, DIGITS][:count]
    if count > 3:
        expected[3] = allowed(laid(rows[3:4], mx.zeros((1, VOCABULARY_SIZE))))[0]
    assert allowed(laid(rows, mx.zeros((count, VOCABULARY_SIZE)))) == expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_mask_is_that_after_the_unread_token(count: int) -> None:
    """It is taken in the threads, once: the row that is told of it later does not take it again."""
    rows = [row_of(*each) for each in [("abc", "a"), ("[0-9]b",), ("12345", "123"), ("1[ab]", "")]][:count]
    unread: list[int | None] = token_ids("b") + token_ids("5") + token_ids("4") + token_ids("1")
    unread = unread[:count]
    expected = [frozenset(token_ids(text)) for text in ("c", "b", "5")] + [frozenset(token_ids("a") + token_ids("b"))]
    expected = expected[:count]
    assert allowed(laid(rows, mx.zeros((count, VOCABULARY_SIZE)), unread)) == expected
    for row, token in zip(rows, unread, strict=True):
        assert row.grammar is not None
        assert token is not None
        assert row.grammar.is_ahead
        row.grammar.take(token)
        assert not row.grammar.is_ahead
        assert row.grammar.fault is None
    assert allowed(laid(rows, mx.zeros((count, VOCABULARY_SIZE)))) == expected


@pytest.mark.parametrize("count", [1, 4])
def test_a_token_that_ends_its_row_is_not_taken(count: int) -> None:
    """A stop token of the client's, an end of text, and one that was not possible."""
    (digit,) = token_ids("1")
    for settings in ({"stop_ids": (digit,)}, {"sampling": Sampling(bad_words=((digit,),))}):
        rows = [row_of("112", **settings) for _ in range(count)]
        masked = laid(rows, mx.zeros((count, VOCABULARY_SIZE)), [digit] * count)
        assert allowed(masked) == [frozenset({digit})] * count
        assert [row.grammar is not None and row.grammar.is_ahead for row in rows] == [False] * count


def test_a_slow_grammar_is_found_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slow mask of a batch makes each row's be timed; the row whose tokens stay slow has a fault."""
    monkeypatch.setattr("engine.sampling.masks.MAX_TOKEN_CPU_S", 0.0)
    costs = {"slow": 0.06, "quick": 0.0, "third": 0.0, "fourth": 0.0}
    rows = {name: row_of("[0-9]+") for name in costs}
    original = RowGrammar.charge

    def charging(grammar: RowGrammar, _: float) -> None:
        original(grammar, next(costs[name] for name, row in rows.items() if row.grammar is grammar))

    monkeypatch.setattr(RowGrammar, "charge", charging)
    masks = GrammarMasks(grammar_tokenizer(), threads=2)
    faults: list[list[str]] = []
    for _ in range(5):
        masks.start(list(rows.values()), [None] * 4).result()
        faults.append([name for name, row in rows.items() if row.grammar is not None and row.grammar.fault is not None])
    assert faults == [[], [], [], ["slow"], ["slow"]]
