"""Greedy tokens: argmax, however it is found."""

import mlx.core as mx
import pytest

from engine.sampling.greedy import likeliest_tokens


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("vocabulary_size", [7, 4_096, 4_100, 49_152])
def test_it_is_argmax(rows: int, vocabulary_size: int) -> None:
    """At sizes with and without the shortcut, in the same type and shape."""
    logits = mx.random.normal((rows, vocabulary_size), key=mx.random.key(vocabulary_size))
    found, expected = likeliest_tokens(logits), mx.argmax(logits, axis=-1)
    assert (expected.tolist(), expected.dtype, expected.shape) == (found.tolist(), found.dtype, found.shape)


def test_of_ties_the_first_wins() -> None:
    """Within a block, over blocks, and where all are alike or masked."""
    logits = mx.zeros((4, 8_192))
    logits[0, mx.array([70, 90])] = 1.0
    logits[1, mx.array([4_000, 8_191])] = 1.0
    logits[2] = -mx.inf
    assert likeliest_tokens(logits).tolist() == [70, 4_000, 0, 0]


def test_half_precision_is_argmax_too() -> None:
    """Only float32 takes the shortcut."""
    logits = mx.random.normal((2, 8_192), key=mx.random.key(1)).astype(mx.bfloat16)
    assert mx.argmax(logits, axis=-1).tolist() == likeliest_tokens(logits).tolist()
