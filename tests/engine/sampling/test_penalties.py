"""Biases and penalties change logits as mlx-lm's processors do, over the same last tokens."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.sample_utils import make_logits_processors

from engine.row import Row
from engine.sampling.history import History
from engine.sampling.penalties import biased, penalised, penalty_reach, plan_biases, plan_penalties
from protocol.sampling import Sampling, TokenBias
from tests.engine.sampling.row_builds import row_of

VOCABULARY = 24


def _oracle(logits: mx.array, sampling: Sampling, tokens: list[int]) -> np.ndarray:
    processors = make_logits_processors(
        {each.id: each.bias for each in sampling.logit_bias},
        sampling.repetition_penalty,
        sampling.repetition_context,
        sampling.presence_penalty,
        sampling.presence_context,
        sampling.frequency_penalty,
        sampling.frequency_context,
    )
    logits = logits[:]
    for processor in processors:
        logits = processor(mx.array(tokens), logits)
    return np.array(logits[0])


def _ours(logits: mx.array, rows: list[Row]) -> np.ndarray:
    seen = [place for place, row in enumerate(rows) if penalty_reach(row)]
    biases = plan_biases(rows, VOCABULARY)
    logits = biased(logits[:], biases) if biases else logits[:]
    penalties = plan_penalties(rows, seen)
    if penalties is not None:
        places = mx.array(seen, dtype=mx.uint32)
        history = History(tuple(rows[place] for place in seen), places, max(penalty_reach(row) for row in rows))
        inputs = mx.array([(row.told or row.to_prefill)[-1] for row in rows], dtype=mx.uint32)
        logits = penalised(logits, penalties, history.advance(inputs))
    return np.array(logits)


_SAMPLINGS = st.builds(
    Sampling,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    repetition_context=st.integers(0, 9),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    presence_context=st.integers(0, 9),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.5]),
    frequency_context=st.integers(0, 9),
    logit_bias=st.lists(st.integers(0, VOCABULARY - 1), unique=True, max_size=3).map(
        lambda ids: tuple(TokenBias(id=id_, bias=id_ - 7.5) for id_ in ids)
    ),
)
_TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=14)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_SAMPLINGS, _TOKENS, _TOKENS | st.just([])), min_size=1, max_size=5), st.integers(0, 2**31))
def test_any_mix_equals_the_oracle_row_by_row(cases: list[tuple[Sampling, list[int], list[int]]], seed: int) -> None:
    """Every row of a batch gets what mlx-lm's processors make of its own logits and tokens, prompt included."""
    logits = mx.random.normal((len(cases), VOCABULARY), key=mx.random.key(seed)) * 3
    rows = [row_of(sampling, prompt=tuple(prompt)) for sampling, prompt, _ in cases]
    for row, (_, _, told) in zip(rows, cases, strict=True):
        row.told.extend(told)
    found = _ours(logits, rows)
    for index, (sampling, prompt, told) in enumerate(cases):
        np.testing.assert_array_equal(found[index], _oracle(logits[index : index + 1], sampling, prompt + told))


@pytest.mark.parametrize("context", [0, 1, 2, 5])
def test_a_window_moves_with_tokens_that_nobody_has_read(context: int) -> None:
    """Five steps on the device alone: each sees the tokens of the steps before it."""
    sampling = Sampling(frequency_penalty=0.5, frequency_context=context)
    row = row_of(sampling, prompt=(3, 4, 5))
    history = History((row,), mx.array([0], dtype=mx.uint32), penalty_reach(row))
    penalties = plan_penalties([row], [0])
    assert penalties is not None
    tokens = [3, 4, 5]
    for token in (4, 4, 9, 3, 4):
        window = history.advance(mx.array(tokens[-1:], dtype=mx.uint32))
        found = np.array(penalised(mx.zeros((1, VOCABULARY)), penalties, window))[0]
        np.testing.assert_array_equal(found, _oracle(mx.zeros((1, VOCABULARY)), sampling, tokens))
        tokens.append(token)


@pytest.mark.parametrize("has_unread", [False, True])
@pytest.mark.parametrize("changes", [{}, {"generated": b"\x05\x00\x00\x00"}])
def test_a_window_begins_with_what_the_host_knows(has_unread: bool, changes: dict[str, Any]) -> None:
    """The input is the unread token, or the last one read: it is in the window once, replayed ones too."""
    row = row_of(Sampling(presence_penalty=1.0, presence_context=0), prompt=(1, 2), **changes)
    row.told.extend([8, 9])
    row.has_unread = has_unread
    window = History((row,), mx.array([0], dtype=mx.uint32), penalty_reach(row)).advance(mx.array([9]))
    replayed = [5] if changes else []
    expected = [1, 2, *replayed, 8, 9, 9] if has_unread else [1, 2, *replayed, 8, 9]
    assert window[0, -len(expected) :].tolist() == expected
    assert set(window[0, : -len(expected)].tolist()) == {2**32 - 1}
