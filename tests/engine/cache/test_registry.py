"""Which caches batch, and what is said of those that do not."""

from mlx_lm.models.cache import KVCache, RotatingKVCache

from engine.cache.registry import KINDS, declared_batching, kinds_of


def test_plain_layers_batch() -> None:
    """A model of plain KV caches alone is declared to batch."""
    assert declared_batching([KVCache(), KVCache()]).mode == "batch"
    assert kinds_of([KVCache()]) == [KINDS[0]]


def test_one_foreign_layer_makes_the_model_serial_with_its_name() -> None:
    """A layer without a kind is named in the reason."""
    batching = declared_batching([KVCache(), RotatingKVCache(8)])
    assert batching.mode == "serial"
    assert "RotatingKVCache" in batching.reason
    assert kinds_of([KVCache(), RotatingKVCache(8)]) is None


def test_a_subclass_is_not_its_parent() -> None:
    """A cache class that only looks like a plain one is not taken for it."""

    class Other(KVCache):
        pass

    assert declared_batching([Other()]).mode == "serial"
