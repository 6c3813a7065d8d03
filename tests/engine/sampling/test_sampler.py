"""Greedy and temperature sampling: per row, seeded, and nothing for what nobody uses."""

from io import StringIO
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.row import Row
from protocol.codec import pack_ids
from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import row_of, sampled, tokens_of
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model

VOCABULARY = 64


def _row(temperature: float, seed: int = 0, drawn: int = 0, **changes: Any) -> Row:
    return row_of(Sampling(temperature=temperature), seed=seed, drawn=drawn, **changes)


def _logits(rows: int, seed: int = 0) -> mx.array:
    return mx.random.normal((rows, VOCABULARY), key=mx.random.key(seed)) * 3


def test_greedy_rows_take_the_argmax() -> None:
    """Temperature 0 is the argmax of the row's own logits."""
    logits = _logits(3)
    assert tokens_of([_row(0.0) for _ in range(3)], logits) == mx.argmax(logits, axis=-1).tolist()


def test_a_greedy_row_beside_hot_ones_is_still_greedy() -> None:
    """D2: neighbours with a temperature do not change a greedy row's token."""
    logits = _logits(3)
    tokens = tokens_of([_row(5.0, 1), _row(0.0), _row(5.0, 2)], logits)
    assert tokens[1] == mx.argmax(logits, axis=-1).tolist()[1]


def test_draws_depend_on_seed_and_position_alone() -> None:
    """D3: a row draws the same token alone, among strangers, and at whatever place in the batch."""
    logits = _logits(1)
    alone = [tokens_of([_row(1.0, seed=9, drawn=position)], logits)[0] for position in range(20)]
    among = [
        tokens_of(
            [_row(2.0, 4), _row(0.0), _row(1.0, seed=9, drawn=position)], mx.concatenate([_logits(2, 5), logits])
        )[2]
        for position in range(20)
    ]
    assert among == alone
    assert len(set(alone)) > 3


def test_seeds_differ_beyond_32_bits() -> None:
    """Two seeds that share their low 32 bits give different draws."""
    logits = mx.zeros((1, VOCABULARY))
    low = [tokens_of([_row(1.0, seed=5, drawn=position)], logits)[0] for position in range(10)]
    high = [tokens_of([_row(1.0, seed=5 + (1 << 40), drawn=position)], logits)[0] for position in range(10)]
    assert low != high


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_draws_follow_the_softmax(temperature: float) -> None:
    """Frequencies over 20,000 fixed draws follow softmax(logits / T): chi-square far under its 1e-9 quantile."""
    logits = mx.array([[2.0, 1.0, 0.5, 0.0, -1.0, 0.2, 1.5, -0.5]])
    count = 20_000
    rows = [_row(temperature, seed=seed) for seed in range(500)]
    counts = np.zeros(8)
    for position in range(count // len(rows)):
        for row in rows:
            row.drawn = position
        tokens = tokens_of(rows, mx.broadcast_to(logits, (len(rows), 8)))
        counts += np.bincount(tokens, minlength=8)
    expected = np.array(mx.softmax(logits[0] / temperature)) * count
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 55.0  # 7 degrees of freedom: P(more) < 1e-9


def test_every_sample_counts_one_draw_per_row() -> None:
    """The position that seeds the next draw moves by one for every row of the batch."""
    rows = [_row(0.0), _row(1.0, drawn=4)]
    tokens_of(rows, _logits(2))
    assert [row.drawn for row in rows] == [1, 5]


def test_stops_are_impossible_below_min_tokens() -> None:
    """A row under min_tokens cannot draw a stop token; its neighbour can."""
    logits = mx.zeros((2, VOCABULARY))
    logits[:, 7] = 50.0
    assert tokens_of([_row(0.0, min_tokens=3), _row(0.0)], logits)[1] == 7
    assert tokens_of([_row(0.0, min_tokens=3), _row(0.0)], logits)[0] != 7
    assert tokens_of([_row(0.0, min_tokens=3, drawn=3)], logits[:1]) == [7]


@pytest.mark.parametrize("foreign", [VOCABULARY, VOCABULARY + 7, 2**31, 2**32 - 1])
def test_a_stop_id_outside_the_vocabulary_touches_nothing(foreign: int) -> None:
    """An id without a logit is nobody's memory: neither the row's neighbour nor the process is hurt by it."""
    logits = _logits(2)
    greedy = mx.argmax(logits, axis=-1).tolist()
    # Without EOS: ids in the vocabulary are the other test's.
    rows = [_row(0.0, min_tokens=3, ignore_eos=True, stop_ids=(foreign,)), _row(0.0)]
    assert tokens_of(rows, logits) == greedy


@pytest.mark.parametrize("temperature", [1e-5, 1e-10, 1e-39, 5e-324])
def test_the_coldest_rows_are_greedy(temperature: float) -> None:
    """A temperature whose inverse no float32 holds still draws the likeliest token."""
    logits = _logits(2)
    rows = [_row(temperature, 1), _row(1.0, 2)]
    assert tokens_of(rows, logits)[0] == mx.argmax(logits, axis=-1).tolist()[0]


def _primitives(output: mx.array) -> int:
    """Operations in the graph that is still to be computed for this array."""
    graph = StringIO()
    mx.export_to_dot(graph, output)
    return graph.getvalue().count("shape=rectangle")


def test_an_all_default_batch_has_argmaxs_graph() -> None:
    """Nothing that no row uses is in the graph: as many primitives as argmax alone has."""
    logits = _logits(4)
    mx.eval(logits)
    default = sampled([_row(0.0) for _ in range(4)], logits)
    assert (_primitives(default.tokens), default.arrays) == (_primitives(mx.argmax(logits, axis=-1)), [default.tokens])
    assert _primitives(sampled([_row(0.0), _row(0.5)], logits[:2]).tokens) > 10


def test_a_seeded_stream_is_the_same_alone_and_among_strangers() -> None:
    """D3 through the loop: seed 11 gives one text, whoever decodes beside it and whenever it joins."""
    hot = {"sampling": Sampling(temperature=1.0), "seed": 11, "max_tokens": 25}
    alone = LoopDriver(tiny_model("llama"))
    alone.submit("a", prompt_of(9), **hot)
    alone.run_until_idle()
    among = LoopDriver(tiny_model("llama"))
    among.submit("x", prompt_of(30, 1), max_tokens=40)
    among.submit("y", prompt_of(5, 2), max_tokens=8, sampling=Sampling(temperature=2.0), seed=3)
    among.turn(4)
    among.submit("a", prompt_of(9), **hot)
    among.run_until_idle()
    assert among.tokens("a") == alone.tokens("a")


def test_a_replayed_stream_goes_on_with_the_same_draws() -> None:
    """D3: a replay with tokens delivered continues the seeded stream where it was."""
    hot: dict[str, Any] = {"sampling": Sampling(temperature=1.0), "seed": 11, "max_tokens": 25}
    first = LoopDriver(tiny_model("llama"))
    first.submit("a", prompt_of(9), **hot)
    first.run_until_idle()
    whole = first.tokens("a")
    replay = LoopDriver(tiny_model("llama"))
    replay.submit("a", prompt_of(9), generated=pack_ids(whole[:10]), **hot)
    replay.run_until_idle()
    assert replay.tokens("a") == whole[10:]
