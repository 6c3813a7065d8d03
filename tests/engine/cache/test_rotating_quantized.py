"""The quantized ring alone: it holds what mlx-lm's float ring holds, quantized."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from engine.cache.rotating_quantized import QuantizedRotatingCache
from engine.cache.scheme import LayerScheme
from tests.engine.cache.twins import DIMENSION, WINDOW, contents, drawn

SCHEME = LayerScheme(4, 32)


def _quantized(cache: RotatingKVCache) -> list[mx.array]:
    return [part for array in contents(cache) for part in mx.quantize(array, SCHEME.group_size, SCHEME.bits)]


def _write(caches: list[RotatingKVCache], tokens: int, seed: int) -> None:
    keys, values = (drawn((1, 2, tokens, DIMENSION), 2 * seed + part) for part in range(2))
    for cache in caches:
        cache.update_and_fetch(keys, values)


@pytest.mark.parametrize("window", [WINDOW, 300])
@pytest.mark.parametrize("sizes", [[1] * 30, [5, 1, 1, 5, 1], [20, 1, 1, 6, 1, 1], [3, 20, 20, 1, 1], [290] + [1] * 20])
def test_it_holds_the_float_rings_tokens_quantized(window: int, sizes: list[int]) -> None:
    """Over any mix of chunks and single tokens, wrapped and not, byte for byte in temporal order."""
    float_ring, ring = RotatingKVCache(window), QuantizedRotatingCache(window, SCHEME)
    for seed, tokens in enumerate(sizes):
        for asked in (1, 3):
            masks = [cache.make_mask(asked, window_size=window) for cache in (float_ring, ring)]
            assert str(masks[0]) == str(masks[1])
        _write([float_ring, ring], tokens, seed)
        assert (ring.offset, ring.size()) == (float_ring.offset, float_ring.size())
        assert all(mx.array_equal(*pair).item() for pair in zip(contents(ring), _quantized(float_ring), strict=True))


@pytest.mark.parametrize("sizes", [[5], [20], [5, 1, 1], [20, 1], [6] + [1] * 9])
def test_a_converted_ring_goes_on_as_one_that_was_quantized_before(sizes: list[int]) -> None:
    """C7: conversion between two chunks, or before the join, wherever the ring stands."""
    float_ring, ring = RotatingKVCache(WINDOW), QuantizedRotatingCache(WINDOW, SCHEME)
    for seed, tokens in enumerate(sizes):
        _write([float_ring, ring], tokens, seed)
    converted = QuantizedRotatingCache.of(float_ring, SCHEME)
    for seed, tokens in enumerate([1, 1, 4, 1, 9, 1]):
        assert all(mx.array_equal(*pair).item() for pair in zip(contents(ring), contents(converted), strict=True))
        _write([converted, ring], tokens, 50 + seed)
    assert ring.nbytes > 0


def test_an_empty_ring_converts_to_an_empty_one() -> None:
    """As a prototype of its kind."""
    converted = QuantizedRotatingCache.of(RotatingKVCache(WINDOW), SCHEME)
    assert converted.empty()
    assert (converted.max_size, converted.scheme, converted.nbytes) == (WINDOW, SCHEME, 0)
