"""E3: what one row takes, by its length, before it is there; on a whole model of every kind of cache."""

import mlx.core as mx
import pytest

from engine.cache.columns import capacity_for
from engine.cache.plan import CachePlan
from engine.footprint import Footprint
from engine.memory_plan import footprint_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import random_model
from tests.parity.kinds import ALL, KINDS, driver_of, support_of

CHUNK_TOKENS = 64


def _footprint(kind: str) -> Footprint:
    found = footprint_of(random_model(KINDS[kind].model), support_of(kind).cache_plan, CHUNK_TOKENS)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ALL)
def test_rows_of_a_group_take_what_was_projected(kind: str) -> None:
    """Rows x allocated columns, over all layers: window-capped, in the scheme's bits, states once."""
    driver = driver_of(kind, chunk_tokens=CHUNK_TOKENS)
    for index, length in enumerate([20, 300, 7]):
        driver.submit(str(index), prompt_of(length, index), max_tokens=40)
    while len(driver.loop._batch) < 3:
        driver.turn()
    (group,) = driver.loop._batch.groups
    footprint = _footprint(kind)
    assert group.allocated_bytes == 3 * footprint.row_bytes(capacity_for(group.layout.width))
    largest = max(cache.nbytes for cache in group.caches)
    assert largest == 3 * footprint.layer_bytes(capacity_for(group.layout.width))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("length", [1, 30, 500])
def test_a_row_alone_never_takes_more_than_was_said(kind: str, length: int) -> None:
    """From its first chunk, which may be computed before it is quantized, to its last token."""
    driver = driver_of(kind, chunk_tokens=CHUNK_TOKENS)
    driver.submit("row", prompt_of(length), max_tokens=30)
    footprint = _footprint(kind)
    most = 0
    driver.turn()
    while driver.live_ids():
        driver.turn()
        taken = driver.loop._live_bytes
        assert taken <= footprint.start_bytes(length + 30)
        most = max(most, taken)
    # What is said is what is needed, but for a step of columns and a chunk.
    assert most > 0
    column_bytes = footprint.row_bytes(2) - footprint.row_bytes(1)
    floats = footprint_of(random_model(KINDS[kind].model), CachePlan(), CHUNK_TOKENS)
    assert floats is not None
    first_chunk = floats.start_bytes(min(length, CHUNK_TOKENS)) if KINDS[kind].bits else 0
    assert footprint.start_bytes(length) <= max(most + (2 * 256 + CHUNK_TOKENS) * column_bytes, 2 * first_chunk)


def test_layers_that_share_a_cache_are_counted_once() -> None:
    """Gemma 4's last layers read what earlier ones keep."""
    model = random_model("gemma4_text")
    footprint = footprint_of(model, CachePlan(), CHUNK_TOKENS)
    assert footprint is not None
    kept = model.make_cache()
    assert len(kept) < len(model.layers)
    assert len(footprint._layers) == len(kept)


def test_nothing_is_computed_for_a_footprint() -> None:
    """It is made of shapes: no buffer of a sample is ever there."""
    model = random_model("llama")
    before_bytes = mx.get_active_memory()
    made = [footprint_of(model, CachePlan(), CHUNK_TOKENS) for _ in range(3)]
    assert mx.get_active_memory() - before_bytes < 1_000
    assert len(made) == 3
