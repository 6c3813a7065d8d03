"""The recurrent kind: states of fixed size per row (convolution, state space), whatever the row's length."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList

from engine.cache.layout import Layout


class RecurrentKind:
    """mlx-lm's ArraysCache alone and together: a state has no columns, so padding never reaches it."""

    name = "recurrent"
    prefills_together = False

    def blank(self, layout: Layout) -> ArraysCache:
        """Not asked for: prompts are prefilled alone."""
        raise NotImplementedError

    def stack(self, caches: list[Any], layout: Layout) -> ArraysCache:
        """The states of all parts, [B, ...] each."""
        states = zip(*(cache.cache for cache in caches), strict=True)
        return _of([mx.concatenate(list(parts)) for parts in states])

    def keep(self, cache: ArraysCache, rows: mx.array, layout: Layout) -> ArraysCache:
        """Takes the rows."""
        return _of([state[rows] for state in _states(cache)])

    def alone(self, cache: ArraysCache, index: int, *, has_spare: bool = True) -> ArraysCache:
        """Copies the row's states."""
        return _of([mx.contiguous(state[index : index + 1]) for state in _states(cache)])

    def shortest(self, tokens: int) -> int:
        """No shorter: a state has all tokens in it."""
        return tokens

    def prefix(self, cache: ArraysCache, tokens: int) -> ArraysCache:
        """The states as they are: whoever goes on puts others in their place."""
        return _of([state[:] for state in _states(cache)])

    def row_bytes(self, cache: ArraysCache, columns: int) -> int:
        """The states, whatever the length."""
        return sum(state.nbytes // state.shape[0] for state in _states(cache))

    def room_tokens(self, cache: ArraysCache) -> None:
        """They never grow."""
        return

    def next_bytes(self, cache: ArraysCache, tokens: int) -> int:
        """They never grow."""
        return cache.nbytes


def release_chunk(caches: list[Any]) -> None:
    """Solo caches' states as copies: a slice of a chunk's array keeps all of it alive until the next forward."""
    for cache in caches:
        if isinstance(cache, CacheList):
            release_chunk(list(cache.caches))
        elif isinstance(cache, ArraysCache):
            cache.cache = [state if state is None else mx.contiguous(state) for state in cache.cache]


def _states(cache: ArraysCache) -> list[mx.array]:
    states: list[Any] = cache.cache
    return states


def _of(states: list[mx.array]) -> ArraysCache:
    cache = ArraysCache(len(states))
    cache.cache = states
    return cache
