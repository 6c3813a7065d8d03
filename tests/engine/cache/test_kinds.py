"""Every kind: a row of a batch attends and holds what it would alone, whoever comes and goes beside it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from engine.cache.columns import capacity_for
from engine.cache.layout import Layout
from engine.cache.registry import kind_of
from engine.cache.rotating_quantized import QuantizedRotatingCache
from engine.cache.scheme import LayerScheme
from tests.engine.cache.twins import ACTIONS, CLOSE, WINDOW, Together, arrays, filled, live_through, same, write

CACHES: dict[str, Callable[[], Any]] = {
    "plain": KVCache,
    "sliding window": lambda: RotatingKVCache(WINDOW),
    "chunked": lambda: ChunkedKVCache(WINDOW),
    "quantized": lambda: QuantizedKVCache(group_size=32, bits=8),
    "quantized sliding window": lambda: QuantizedRotatingCache(WINDOW, LayerScheme(4, 32)),
    "recurrent": lambda: ArraysCache(2),
    "latent": lambda: CacheList(KVCache(), KVCache()),
    "composite": lambda: CacheList(ArraysCache(2), KVCache(), RotatingKVCache(WINDOW)),
}
FIRST = st.lists(st.integers(1, 3 * WINDOW), min_size=1, max_size=5)


def _together(name: str) -> Together:
    make = CACHES[name]
    return Together(kind_of(make()), make)


@pytest.mark.parametrize("name", CACHES)
@settings(max_examples=60, deadline=None)
@given(first=FIRST, actions=ACTIONS)
def test_rows_live_as_they_would_alone(name: str, first: list[int], actions: list[Any]) -> None:
    """C4: after any sequence of join, step and leave each row equals its solo twin, byte for byte."""
    live_through(_together(name), first, actions)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", CACHES)
@settings(max_examples=1_000, deadline=None)
@given(first=FIRST, actions=ACTIONS)
def test_rows_live_as_they_would_alone_for_long(name: str, first: list[int], actions: list[Any]) -> None:
    """The same over many more sequences."""
    live_through(_together(name), first, actions)


@pytest.mark.parametrize("name", CACHES)
def test_a_long_run_past_the_window(name: str) -> None:
    """400 tokens past the wrap, with a row that joins in the middle of a wrapped ring."""
    batch = _together(name)
    batch.join([3, 20])
    distances = [batch.step() for _ in range(200)]
    batch.join([11])
    distances += [batch.step() for _ in range(208)]
    assert max(distances) < 1e-5
    assert batch.holds_what_twins_hold()


@pytest.mark.parametrize("name", CACHES)
def test_no_two_caches_share_an_array(name: str) -> None:
    """Writes through a row that was taken out, or kept, change nobody else's bytes."""
    batch = _together(name)
    batch.join([9, 4, 13])
    before = [mx.array(array) for array in arrays(batch.cache)]
    mx.eval(before)
    alone = Together(batch.kind, batch.make, twins=[batch.twins[1]], cache=batch.kind.alone(batch.cache, 1))
    layout = batch.layout.kept([0, 2])
    kept = Together(batch.kind, batch.make, [batch.twins[0], batch.twins[2]], layout)
    kept.cache = batch.kind.keep(batch.cache, mx.array([0, 2]), layout)
    for other in (alone, kept):
        other.step()
        mx.eval(arrays(other.cache))
    assert all(mx.array_equal(one, other).item() for one, other in zip(before, arrays(batch.cache), strict=True))


@pytest.mark.parametrize("name", CACHES)
def test_the_last_row_has_the_solo_class(name: str) -> None:
    """B11: who is left alone goes on in the class that it started with."""
    batch = _together(name)
    batch.join([9, 4])
    batch.leave([1])
    assert type(batch.cache) is type(batch.make())
    assert batch.step() == 0.0


@pytest.mark.parametrize("name", CACHES)
def test_bytes_count_all_buffers(name: str) -> None:
    """What a batched cache reports is what its arrays take."""
    batch = _together(name)
    batch.join([9, 4])
    assert sum(array.nbytes for array in arrays(batch.cache)) == batch.cache.nbytes > 0


@pytest.mark.parametrize("name", CACHES)
def test_projected_bytes_are_the_bytes(name: str) -> None:
    """E3: what a row is charged at a group's width is what it takes there, window-capped, in the scheme's bits."""
    batch = _together(name)
    batch.join([9, 4, 17])
    columns = capacity_for(batch.layout.width + 1)
    assert 3 * batch.kind.row_bytes(batch.cache, columns) == batch.cache.nbytes
    assert batch.kind.row_bytes(filled(batch.make, 4, 1), columns) == batch.kind.row_bytes(batch.cache, columns)


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("lengths", [[9, 4, 17], [3 * WINDOW], [2]])
def test_the_next_step_takes_what_was_said(name: str, lengths: list[int]) -> None:
    """E3: through two growths, alone and together; while there is room nothing grows. Alone, a chunk's rest goes."""
    batch = _together(name)
    batch.join(lengths)
    grown = 0
    for _ in range(600):
        before, said = batch.cache.nbytes, batch.kind.next_bytes(batch.cache, 1)
        room = batch.kind.room_tokens(batch.cache)
        batch.step()
        assert batch.cache.nbytes == said or batch.cache.nbytes < said == before
        assert said == before or room == 0
        grown += said > before
    assert grown >= (2 if name in ("plain", "quantized", "latent") else 0)


@pytest.mark.parametrize("name", CACHES)
@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 400), tokens=st.integers(2, 300))
def test_a_chunk_takes_what_was_said(name: str, length: int, tokens: int) -> None:
    """E3: several tokens in one forward of a row alone, also past a window."""
    cache = filled(CACHES[name], length, 1, chunk=64)
    kind = kind_of(cache)
    before, said = cache.nbytes, kind.next_bytes(cache, tokens)
    write(cache, tokens, 7)
    assert cache.nbytes == said or cache.nbytes < said == before


@pytest.mark.parametrize("name", CACHES)
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 3 * WINDOW), min_size=2, max_size=5))
def test_what_was_merged_comes_back(name: str, lengths: list[int]) -> None:
    """C4: `extract(merge(rows))[i] == row i`, byte for byte over the live window, in temporal order."""
    batch = _together(name)
    batch.join(lengths)
    assert all(same(batch.kind.alone(batch.cache, index), twin) for index, twin in enumerate(batch.twins))


@pytest.mark.parametrize("name", CACHES)
@settings(max_examples=20, deadline=None)
@given(
    left=st.lists(st.integers(1, 3 * WINDOW), min_size=2, max_size=3),
    right=st.lists(st.integers(1, 3 * WINDOW), min_size=2, max_size=2),
    steps=st.tuples(st.integers(0, 2 * WINDOW), st.integers(0, 2 * WINDOW), st.integers(1, 2 * WINDOW)),
)
def test_padded_batches_become_one(name: str, left: list[int], right: list[int], steps: tuple[int, int, int]) -> None:
    """C4: two batches, each padded and perhaps wrapped, as one: each row lives on as alone."""
    batches = [_together(name), _together(name)]
    batches[1].seed = 50_000
    for batch, lengths, count in zip(batches, (left, right), steps[:2], strict=True):
        batch.join(lengths)
        for _ in range(count):
            assert batch.step() < CLOSE
    layout = Layout.side_by_side([batch.layout for batch in batches])
    cache = batches[0].kind.stack([batch.cache for batch in batches], layout)
    twins = batches[0].twins + batches[1].twins
    both = Together(batches[0].kind, batches[0].make, twins, layout, cache, seed=90_000)
    assert both.holds_what_twins_hold()
    for _ in range(steps[2]):
        assert both.step() < CLOSE
    assert both.holds_what_twins_hold()


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("chunk", [2, 12])
def test_a_prefix_holds_what_a_row_of_its_length_holds(name: str, chunk: int) -> None:
    """E6: cut to any length that its kind allows, and all lengths before the window is full; it goes on as that row."""
    make, kind = CACHES[name], kind_of(CACHES[name]())
    cuts = 0
    for length in range(chunk, 4 * WINDOW, chunk):
        shortest = kind.shortest(length)
        for tokens in range(chunk, length + 1, chunk):
            if tokens != length and tokens < shortest:
                continue
            cuts += tokens < length
            prefix = kind.prefix(filled(make, length, 1, chunk), tokens)
            twin = filled(make, tokens, 1, chunk)
            assert same(prefix, twin)
            assert mx.array_equal(write(prefix, 1, 5_000), write(twin, 1, 5_000))
            assert mx.array_equal(write(prefix, 3, 6_000), write(twin, 3, 6_000))
            assert same(prefix, twin)
    assert cuts or name in ("recurrent", "composite") or chunk > WINDOW


@pytest.mark.parametrize("name", CACHES)
def test_nobody_writes_into_anothers_prefix(name: str) -> None:
    """E6: donor and two joiners go on from the same tokens, each as alone; the donor's bytes stay for a third."""
    make, kind = CACHES[name], kind_of(CACHES[name]())
    for length in (3, 7, 12, 30):
        donor, twin = filled(make, length, 1), filled(make, length, 1)
        joiners = [kind.prefix(donor, length) for _ in range(2)]
        for step, cache in enumerate([*joiners, donor]):
            other = filled(make, length, 1)
            for tokens in (1, 1, 4, 1):
                assert mx.array_equal(write(cache, tokens, 100 * step), write(other, tokens, 100 * step))
            assert same(cache, other)
        kept = kind.prefix(twin, length)
        write(twin, 1, 9)
        assert same(kept, filled(make, length, 1))


@pytest.mark.parametrize("name", CACHES)
def test_a_row_is_taken_out_without_free_columns(name: str) -> None:
    """What is kept of a row has no more bytes than its tokens, and is the row."""
    batch = _together(name)
    batch.join([9, 4, 17])
    for index, twin in enumerate(batch.twins):
        alone = batch.kind.alone(batch.cache, index, has_spare=False)
        mx.eval(arrays(alone))
        assert same(alone, twin)
        most_bytes = batch.kind.row_bytes(alone, batch.layout.width - batch.layout.pads[index])
        # Of a chunked cache only the tokens of the last chunk are left.
        assert alone.nbytes == most_bytes or (name == "chunked" and alone.nbytes < most_bytes)
