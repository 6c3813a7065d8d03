"""Every sampler draws from the distribution that mlx-lm's filters leave, and from nothing else."""

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, apply_xtc

from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import row_of, tokens_of

VOCABULARY = 768
DRAWS = 20_000
ROWS = 500
PEAKED, FLAT = 3.0, 0.2

SAMPLERS = {
    "temperature": Sampling(temperature=1.0),
    "cold": Sampling(temperature=0.6),
    "hot": Sampling(temperature=1.8),
    "top_k": Sampling(temperature=0.9, top_k=40),
    "wide_top_k": Sampling(temperature=1.2, top_k=500),
    "top_p": Sampling(temperature=0.9, top_p=0.9),
    "narrow_top_p": Sampling(temperature=1.1, top_p=0.3),
    "least_top_p": Sampling(temperature=1.5, top_p=0.02),
    "min_p": Sampling(temperature=1.0, min_p=0.05),
    "top_k_top_p": Sampling(temperature=0.8, top_k=60, top_p=0.7),
    "top_p_min_p": Sampling(temperature=1.3, top_p=0.95, min_p=0.02),
    "all": Sampling(temperature=1.3, top_k=50, top_p=0.9, min_p=0.01),
    "xtc": Sampling(temperature=1.0, xtc_probability=0.5, xtc_threshold=0.05),
    "xtc_spared": Sampling(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.01, xtc_spared_ids=(0, 1, 2)),
    "xtc_all": Sampling(temperature=1.2, top_k=30, top_p=0.95, min_p=0.001, xtc_probability=0.6, xtc_threshold=0.03),
}


@pytest.fixture(autouse=True)
def _oracle_without_its_compiler() -> Iterator[None]:
    """mlx-lm's filters are compiled functions: each would start a C++ compiler."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def _logits(spread: float) -> mx.array:
    """[1, V]; the likeliest tokens lie all over the vocabulary, three of them at its beginning."""
    logits = mx.random.normal((1, VOCABULARY), key=mx.random.key(3)) * spread
    logits[0, :3] = mx.array([3.2, 3.0, 2.9]) * spread
    return logits


def _oracle(logits: mx.array, sampling: Sampling, *, fires: bool) -> np.ndarray:
    """Probabilities [V] as mlx-lm's sampler chain leaves them, with XTC's coin known."""
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    if 0 < sampling.top_p < 1:
        logprobs = apply_top_p(logprobs, sampling.top_p)
    if sampling.min_p:
        logprobs = apply_min_p(logprobs, sampling.min_p)
    if fires:
        logprobs = apply_xtc(logprobs, 1.0, sampling.xtc_threshold, list(sampling.xtc_spared_ids))
    if sampling.top_k:
        logprobs = apply_top_k(logprobs, sampling.top_k)
    return np.array(mx.softmax(logprobs[0] / sampling.temperature), dtype=np.float64)


def _expected(logits: mx.array, sampling: Sampling) -> np.ndarray:
    fired = _oracle(logits, sampling, fires=True) * sampling.xtc_probability if sampling.xtc_probability else 0.0
    return fired + _oracle(logits, sampling, fires=False) * (1 - sampling.xtc_probability)


def _counts(logits: mx.array, sampling: Sampling) -> np.ndarray:
    rows = [row_of(sampling, seed=seed) for seed in range(ROWS)]
    counts = np.zeros(VOCABULARY)
    for position in range(DRAWS // ROWS):
        for row in rows:
            row.drawn = position
        tokens = tokens_of(rows, mx.broadcast_to(logits, (ROWS, VOCABULARY)))
        counts += np.bincount(tokens, minlength=VOCABULARY)
    return counts


def _binned(counts: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens expected under five times share bins, likest with likest, so that chi-square's quantiles hold."""
    order = np.argsort(-expected)
    starts, mass = [0], 0.0
    for index, token in enumerate(order):
        if mass >= 5:
            starts.append(index)
            mass = 0.0
        mass += expected[token]
    if mass < 5 and len(starts) > 1:
        starts.pop()
    return np.add.reduceat(counts[order], starts), np.add.reduceat(expected[order], starts)


def _quantile(freedom: int) -> float:
    """Of chi-square, exceeded once in 1e9 (Wilson and Hilferty 1931; z = 6)."""
    return freedom * (1 - 2 / (9 * freedom) + 6 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize(
    ("name", "spread"),
    [
        *((name, PEAKED) for name in SAMPLERS),
        *((name, FLAT) for name in ("temperature", "top_p", "least_top_p", "xtc")),
    ],
)
def test_draws_follow_the_oracles_filters(name: str, spread: float) -> None:
    """Over 20,000 fixed draws: nothing outside the oracle's set, and chi-square under its 1e-9 quantile."""
    logits = _logits(spread)
    expected = _expected(logits, SAMPLERS[name]) * DRAWS
    counts = _counts(logits, SAMPLERS[name])
    assert counts[expected == 0].sum() == 0
    found, wanted = _binned(counts[expected > 0], expected[expected > 0])
    if len(found) > 1:
        assert float(((found - wanted) ** 2 / wanted).sum()) < _quantile(len(found) - 1)


def test_the_hottest_draw_stays_in_the_nucleus() -> None:
    """At the greatest temperature, from a large vocabulary: most tries are out, and none of them is taken."""
    logits = mx.random.normal((1, 49_152), key=mx.random.key(3)) * PEAKED
    likeliest = mx.argmax(logits, axis=-1).item()
    rows = [row_of(Sampling(temperature=100.0, top_p=0.02), seed=seed) for seed in range(128)]
    drawn: list[int] = []
    for position in range(2):
        for row in rows:
            row.drawn = position
        drawn += tokens_of(rows, mx.broadcast_to(logits, (len(rows), logits.shape[1])))
    assert set(drawn) == {likeliest}


def test_a_top_k_of_the_whole_vocabulary_is_off() -> None:
    """It draws as no top-k does, token for token."""
    rows = [row_of(Sampling(temperature=1.0, top_k=top_k), seed=5) for top_k in (VOCABULARY, 10 * VOCABULARY, 0)]
    tokens = tokens_of(rows, mx.broadcast_to(_logits(PEAKED), (3, VOCABULARY)))
    assert tokens == [tokens[0]] * 3


@pytest.mark.parametrize("top_k", [1, 2, 7])
def test_tied_tokens_are_no_more_than_top_k(top_k: int) -> None:
    """A flat distribution has no k likeliest tokens: any k of them are as good, and no more."""
    rows = [row_of(Sampling(temperature=1.0, top_k=top_k), seed=seed) for seed in range(300)]
    assert len(set(tokens_of(rows, mx.zeros((300, VOCABULARY))))) == top_k


def test_a_row_with_one_possible_token_takes_it() -> None:
    """All other logits are -inf: every sampler finds the one, and none makes a NaN of it."""
    logits = mx.full((1, VOCABULARY), -mx.inf)
    logits[0, 567] = -3.0
    rows = [row_of(sampling, seed=3) for sampling in SAMPLERS.values()]
    assert tokens_of(rows, mx.broadcast_to(logits, (len(rows), VOCABULARY))) == [567] * len(rows)


def test_a_row_without_a_possible_token_takes_one_of_the_vocabulary() -> None:
    """Nothing can be right then, but an id beyond the vocabulary would be memory of somebody else."""
    rows = [row_of(sampling, seed=3) for sampling in SAMPLERS.values() if sampling.top_k < 1_001]
    assert all(0 <= token < 1_001 for token in tokens_of(rows, mx.full((len(rows), 1_001), -mx.inf)))
