"""What may not come up does not, and nothing else is touched."""

import mlx.core as mx
import pytest

from engine.sampling.sampler import plan_sampling, sample
from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import EOS, row_of, tokens_of

VOCABULARY = 64


def _falling(rows: int) -> mx.array:
    """Logits [rows, V] that fall with the id: greedy takes the least id that may come up."""
    return mx.broadcast_to(-mx.arange(VOCABULARY, dtype=mx.float32), (rows, VOCABULARY))


def test_only_allowed_ids_come_up() -> None:
    """A row with allowed ids takes the best of them; its neighbours take what they like."""
    rows = [row_of(Sampling()), row_of(Sampling(allowed_ids=(40, 9, 30))), row_of(Sampling(allowed_ids=(5,)))]
    assert tokens_of(rows, _falling(3)) == [0, 9, 5]


def test_hot_rows_draw_among_the_allowed_ids() -> None:
    """However flat the logits, nothing else is drawn, and each of them is."""
    rows = [row_of(Sampling(temperature=50.0, allowed_ids=(4, 40)), seed=seed) for seed in range(60)]
    assert set(tokens_of(rows, _falling(60))) == {4, 40}


def test_a_bad_word_of_one_id_never_comes_up() -> None:
    """It needs no history."""
    rows = [row_of(Sampling(bad_words=((0,), (1,)))), row_of(Sampling())]
    assert tokens_of(rows, _falling(2)) == [2, 0]


@pytest.mark.parametrize(
    ("prompt", "told", "expected"),
    [
        ((8, 9), [], 1),
        ((9,), [], 0),
        ((8,), [9], 1),
        ((9, 8), [9, 9], 0),
        ((8, 9, 0), [], 0),
        ((1, 1, 1), [1, 1, 8, 9], 1),
    ],
)
def test_a_bad_word_is_not_completed(prompt: tuple[int, ...], told: list[int], expected: int) -> None:
    """Its last id is banned where the ids before it stand, and only there, whoever else has longer bad words."""
    row = row_of(Sampling(bad_words=((8, 9, 0),)), prompt=prompt)
    row.told.extend(told)
    longer = row_of(Sampling(bad_words=((1, 2, 3, 4, 5, 6), (2, 0))), prompt=(2,))
    logits, inputs = _falling(2), mx.array([(told or list(prompt))[-1], 2], dtype=mx.uint32)
    assert sample(logits, plan_sampling([row, longer]), inputs).tokens.tolist() == [expected, 1]


def test_stops_are_banned_with_everything_else() -> None:
    """min_tokens holds beside the other bans, and ends with its count."""
    rows = [row_of(Sampling(bad_words=((0,),)), min_tokens=2, stop_ids=(1,), drawn=drawn) for drawn in (0, 1, 2)]
    assert tokens_of(rows, _falling(3)) == [2, 2, 1]
    held = row_of(Sampling(allowed_ids=(EOS, 12)), min_tokens=1)
    assert tokens_of([held], _falling(1)) == [12]


def test_the_callers_logits_stay_as_they_are() -> None:
    """Masks are written to a copy."""
    logits = _falling(2)[:] + 0
    tokens_of([row_of(Sampling(bad_words=((0,),), presence_penalty=3.0)) for _ in range(2)], logits)
    assert logits.tolist() == _falling(2).tolist()
