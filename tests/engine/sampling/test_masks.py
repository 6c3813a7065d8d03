"""Masks let through what the grammar allows, on the rows that have one, whatever the width of the logits."""

import mlx.core as mx
import numpy as np
import pytest

from engine.row import Row, RowKey, make_row
from engine.sampling.masks import GrammarMasks
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from tests.fakes.grammars import EOS_ID, VOCABULARY_SIZE, compiled, grammar_tokenizer, token_ids
from tests.fakes.loop_driver import facts_of
from tests.fakes.models import tiny_model

DIGITS = frozenset(token_ids("0123456789"))


def row_of(pattern: str | None, taken: str = "") -> Row:
    """A row in the grammar of a regular expression, or a free one."""
    submit = Submit(epoch="e", id=SubmitId("r"), group="r", model="model", prompt=TokenPrompt(ids=pack_ids([1])))
    row = make_row(RowKey(b"c", submit.id), submit, facts_of(tiny_model("llama"), eos_ids=(EOS_ID,)), 0.0)
    if pattern is not None:
        row.grammar = compiled("regex", pattern)
        for token in token_ids(taken):
            row.grammar.take(token)
    return row


def allowed(logits: mx.array) -> list[frozenset[int]]:
    """Ids of each row that are not impossible."""
    return [frozenset(np.flatnonzero(line > -np.inf).tolist()) for line in np.array(logits.astype(mx.float32))]


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("width", [VOCABULARY_SIZE, VOCABULARY_SIZE + 37, VOCABULARY_SIZE - 100])
def test_only_constrained_rows_change(width: int, dtype: mx.Dtype) -> None:
    """Free rows keep every logit; a constrained row keeps the values of what its grammar allows."""
    rows = [row_of(None), row_of("[0-9]+"), row_of(None), row_of("[0-9]+", "7")]
    logits = mx.random.normal((4, width), key=mx.random.key(1)).astype(dtype)
    before = np.array(logits.astype(mx.float32))
    laid = GrammarMasks(grammar_tokenizer()).laid_over(logits, rows)
    assert laid.dtype == dtype
    everything = frozenset(range(width))
    digits = frozenset(id_ for id_ in DIGITS if id_ < width)
    assert allowed(laid) == [everything, digits, everything, digits | {EOS_ID}]
    after = np.array(laid.astype(mx.float32))
    assert np.array_equal(after[after > -np.inf], before[after > -np.inf])


def test_without_a_grammar_nothing_is_built() -> None:
    """Free rows get the very array back."""
    logits = mx.zeros((2, VOCABULARY_SIZE))
    assert GrammarMasks(grammar_tokenizer()).laid_over(logits, [row_of(None), row_of(None)]) is logits


def test_a_batch_of_constrained_rows_alone() -> None:
    """Each row follows its own grammar."""
    rows = [row_of("[0-9]+"), row_of("ab", "a"), row_of("[0-9]", "3")]
    laid = GrammarMasks(grammar_tokenizer()).laid_over(mx.zeros((3, VOCABULARY_SIZE)), rows)
    assert allowed(laid) == [DIGITS, frozenset(token_ids("b")), frozenset({EOS_ID})]
