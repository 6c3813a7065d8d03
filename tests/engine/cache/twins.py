"""A batch of one layer's caches beside solo twins that live through the same: what both hold must be the same."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from engine.cache.base import CacheKind
from engine.cache.chunked import ChunkedBatch, chunk_mask, drop_ended_chunks
from engine.cache.layout import Layout
from engine.cache.rotating_quantized import QuantizedRotatingCache

HEADS, DIMENSION, WINDOW = 2, 32, 8
# Of the widest difference between a row's attention together and alone, in float32.
CLOSE = 1e-5


def drawn(shape: tuple[int, ...], seed: int) -> mx.array:
    """Normal values."""
    return mx.random.normal(shape, key=mx.random.key(seed))


def write(cache: Any, tokens: int, seed: int, rows: slice = slice(None), of: int = 1) -> mx.array:
    """Forwards tokens through one layer as a model would; `rows` of the `of` random ones that `seed` gives.

    Returns what the layer puts out, [rows, any].
    """
    if isinstance(cache, CacheList):
        written = [write(part, tokens, seed + index, rows, of) for index, part in enumerate(cache.caches)]
        return mx.concatenate(written, axis=1)
    queries, keys, values = (drawn((of, HEADS, tokens, DIMENSION), 3 * seed + part)[rows] for part in range(3))
    if isinstance(cache, ArraysCache):
        state = queries.sum(axis=2)
        for index in range(len(cache.cache)):
            state = state + (0.0 if cache[index] is None else 0.5 * cache[index])
            cache[index] = state
        return state.flatten(1)
    if isinstance(cache, ChunkedKVCache | ChunkedBatch):
        drop_ended_chunks(cache)
        mask = chunk_mask(cache, tokens)
    else:
        mask = create_attention_mask(mx.zeros((queries.shape[0], tokens, 1)), cache)
    keys, values = cache.update_and_fetch(keys, values)
    return scaled_dot_product_attention(queries, keys, values, cache, 0.5, mask).flatten(1)


def filled(make: Callable[[], Any], length: int, seed: int, chunk: int = 6) -> Any:
    """A solo cache after a prompt of this length, in chunks."""
    cache = make()
    for start in range(0, length, chunk):
        write(cache, min(chunk, length - start), seed + start)
    return cache


def contents(cache: Any) -> list[mx.array]:
    """What a solo cache holds, in temporal order, free columns left out."""
    if isinstance(cache, CacheList):
        return [array for part in cache.caches for array in contents(part)]
    if isinstance(cache, ArraysCache):
        return list(cache.cache)
    if isinstance(cache, QuantizedKVCache):
        return [part[..., : cache.offset, :] for part in (*cache.keys, *cache.values)]
    if isinstance(cache, QuantizedRotatingCache):
        triples = (*cache.ordered(cache.keys), *cache.ordered(cache.values))
        return [part[..., -cache.size() :, :] for part in triples]
    if isinstance(cache, KVCache | ChunkedKVCache):
        # The others see the last chunk alone.
        seen = cache.offset if isinstance(cache, KVCache) else (cache.offset - 1) % cache.chunk_size + 1
        stop = cache.offset - getattr(cache, "start_position", 0)
        return [part[..., stop - seen : stop, :] for part in (cache.keys, cache.values)]
    if isinstance(cache, RotatingKVCache):
        return [cache._temporal_order(part)[..., -cache.size() :, :] for part in (cache.keys, cache.values)]
    raise TypeError(type(cache))


def same(left: Any, right: Any) -> bool:
    """Byte for byte, positions included."""
    positions = [getattr(cache, "offset", None) for cache in (left, right)]
    pairs = zip(contents(left), contents(right), strict=True)
    return type(left) is type(right) and positions[0] == positions[1] and all(mx.array_equal(*pair) for pair in pairs)


@dataclass
class Together:
    """One batched cache, each row's twin, and the layout that the batch would keep."""

    kind: CacheKind
    make: Callable[[], Any]
    twins: list[Any] = field(default_factory=list)
    layout: Layout = field(default_factory=lambda: Layout([], 0))
    cache: Any = None
    seed: int = 1_000

    def join(self, lengths: list[int]) -> None:
        """Rows with prompts of these lengths come in; a lone row is a solo cache."""
        parts, layouts = ([self.cache], [self.layout]) if self.twins else ([], [])
        for length in lengths:
            self.seed += 100
            parts.append(filled(self.make, length, self.seed))
            layouts.append(Layout([0], length))
            self.twins.append(filled(self.make, length, self.seed))
        self.layout = Layout.side_by_side(layouts)
        self.cache = parts[0] if len(parts) == 1 else self.kind.stack(parts, self.layout)

    def leave(self, keep: list[int]) -> None:
        """Only these rows stay; the last one goes back to a solo cache."""
        self.twins = [self.twins[index] for index in keep]
        if len(keep) == 1:
            length = self.layout.width - self.layout.pads[keep[0]]
            self.cache, self.layout = self.kind.alone(self.cache, keep[0]), Layout([0], length)
        else:
            layout = self.layout.kept(keep)
            self.cache, self.layout = self.kind.keep(self.cache, mx.array(keep), layout), layout

    def step(self) -> float:
        """One token for every row; the widest difference of attention output from the twins'."""
        self.seed += 100
        rows = len(self.twins)
        together = write(self.cache, 1, self.seed, of=rows)
        self.layout.advance(1)
        alone = [write(twin, 1, self.seed, slice(index, index + 1), rows) for index, twin in enumerate(self.twins)]
        return mx.abs(together - mx.concatenate(alone)).max().item()

    def holds_what_twins_hold(self) -> bool:
        """C4: each row, taken out, equals its twin."""
        if len(self.twins) == 1:
            return same(self.cache, self.twins[0])
        return all(same(self.kind.alone(self.cache, index), twin) for index, twin in enumerate(self.twins))


def arrays(cache: Any) -> list[mx.array]:
    """All arrays that a cache holds."""
    return [leaf for _, leaf in tree_flatten(cache.state) if isinstance(leaf, mx.array)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 9)),
        st.tuples(st.just("join"), st.lists(st.integers(1, 3 * WINDOW), min_size=1, max_size=2)),
        st.tuples(st.just("leave"), st.integers(0, 10_000)),
    ),
    max_size=8,
)


def live_through(batch: Together, first: list[int], actions: list[Any]) -> None:
    """Joins, steps and leaves; checks the attention at each step and the contents at the end."""
    batch.join(first)
    for action, argument in actions:
        rows = len(batch.twins)
        if action == "step":
            for _ in range(argument):
                assert batch.step() < CLOSE
        elif action == "join" and rows + len(argument) <= 5:
            batch.join(argument)
        elif action == "leave" and rows > 1:
            chosen = 1 + argument % (2**rows - 2)
            batch.leave([index for index in range(rows) if chosen >> index & 1])
    assert batch.holds_what_twins_hold()
