"""Which caches batch, and what is said of those that do not."""

import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, RotatingKVCache

from engine.cache.registry import declared_batching, kinds_of


@pytest.mark.parametrize(
    ("cache", "name"),
    [
        (KVCache(), "plain"),
        (RotatingKVCache(8), "sliding window"),
        (ChunkedKVCache(8), "chunked"),
        (ArraysCache(2), "recurrent"),
        (CacheList(ArraysCache(2), KVCache()), "recurrent with plain"),
    ],
)
def test_each_of_mlx_lms_caches_has_its_kind(cache: object, name: str) -> None:
    """Kinds are found by the exact class of a solo cache, composite ones by their parts."""
    (kind,) = kinds_of([cache]) or []
    assert name == kind.name
    assert declared_batching([cache]).mode == "batch"


@pytest.mark.parametrize(
    ("cache", "reason"),
    [
        (RotatingKVCache(8, keep=4), "first 4 tokens"),
        (CacheList(KVCache(), RotatingKVCache(8, keep=2)), "first 2 tokens"),
    ],
)
def test_a_cache_that_cannot_join_is_served_serially(cache: object, reason: str) -> None:
    """One such layer decides for the model, and the user is told why."""
    batching = declared_batching([KVCache(), cache])
    assert batching.mode == "serial"
    assert reason in batching.reason
    assert kinds_of([KVCache(), cache]) is None


def test_a_model_without_caches_is_serial() -> None:
    """There is nothing to batch by."""
    assert declared_batching([]).mode == "serial"


def test_a_subclass_is_not_its_parent() -> None:
    """A cache class that only looks like a plain one is not taken for it."""

    class Other(KVCache):
        pass

    assert declared_batching([Other()]).mode == "serial"
