"""Rows with and without grammars are sampled apart and come together in their places."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.row import Row
from engine.sampling.masks import GrammarMasks
from engine.sampling.split import constrained_logits, in_batch_order, plan_split, sample_constrained, sample_free
from protocol.messages import LogprobsWanted
from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import row_of, tokens_of
from tests.fakes.grammars import VOCABULARY_SIZE, compiled, grammar_tokenizer, token_ids

HOT = Sampling(temperature=1.0, top_k=40, repetition_penalty=1.2)
DIGITS = set(token_ids("0123456789"))


def constrained(sampling: Sampling, **changes: object) -> Row:
    """A row that may only write digits."""
    row = row_of(sampling, **changes)
    row.grammar = compiled("regex", "[0-9]{1,90}")
    return row


def split_tokens(rows: list[Row], logits: mx.array) -> list[int]:
    """One step of a group in two parts."""
    inputs = mx.array([row.to_prefill[-1] for row in rows], dtype=mx.uint32)
    plan = plan_split(rows)
    assert plan is not None
    masks = GrammarMasks(grammar_tokenizer())
    words = masks.start(plan.constrained.rows, [None] * len(plan.constrained.rows)).result()
    masked = masks.laid_over(constrained_logits(logits, plan), words)
    sampled = sample_constrained(masked, plan, inputs)
    tokens = sampled.tokens if plan.order is None else in_batch_order(sample_free(logits, plan, inputs), sampled, plan)
    return tokens.tolist()  # pyright: ignore[reportReturnType]


def test_a_group_without_grammars_is_not_split() -> None:
    """It samples before its step is read."""
    assert plan_split([row_of(HOT), row_of(Sampling())]) is None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 99)), min_size=1, max_size=7), st.integers(0, 99)
)
def test_a_split_group_samples_what_each_row_samples_alone(cases: list[tuple[bool, bool, int]], seed: int) -> None:
    """In whatever order they stand, greedy and hot, with penalties and a minimum."""
    logits = mx.random.normal((len(cases), VOCABULARY_SIZE), key=mx.random.key(seed)) * 2

    def rows() -> list[Row]:
        built: list[Row] = []
        for index, (has_grammar, is_hot, row_seed) in enumerate(cases):
            make = constrained if has_grammar else row_of
            built.append(make(HOT if is_hot else Sampling(), seed=row_seed, prompt=(index, 5, 9), min_tokens=index % 2))
        return built

    def alone(index: int) -> int:
        row, own = rows()[index], logits[index : index + 1]
        return (tokens_of if row.grammar is None else split_tokens)([row], own)[0]

    together = rows()
    if any(has_grammar for has_grammar, _, _ in cases):
        tokens = split_tokens(together, logits)
        assert tokens == [alone(index) for index in range(len(cases))]
        assert {token for token, (has_grammar, _, _) in zip(tokens, cases, strict=True) if has_grammar} <= DIGITS
    assert all(row.drawn == (1 if any(case[0] for case in cases) else 0) for row in together)


@pytest.mark.parametrize("has_grammar", [True, False])
def test_log_probabilities_reach_the_row_that_asked(has_grammar: bool) -> None:
    """Of the masked logits for a row in a grammar, of its own for a free one; the others have none."""
    asking = (constrained if has_grammar else row_of)(Sampling(), logprobs=LogprobsWanted(top=3))
    rows = [row_of(Sampling()), asking, constrained(Sampling())]
    logits = mx.random.normal((3, VOCABULARY_SIZE), key=mx.random.key(4))
    tokens = split_tokens(rows, logits)
    assert [len(row.unread_logprobs) for row in rows] == [0, 1, 0]
    told = asking.unread_logprobs.popleft().read()
    own = np.array(logits[1])
    kept = [id_ for id_ in range(VOCABULARY_SIZE) if not has_grammar or id_ in DIGITS]
    expected = own[tokens[1]] - np.log(np.exp(own[kept]).sum())
    assert told.logprob == pytest.approx(expected, abs=1e-4)
    assert len(told.top) == 3
