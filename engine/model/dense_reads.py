"""Attention over quantized caches where a device has no product with them: each layer reads its columns as floats.

The caches stay quantized; the float columns of one layer exist while it attends.
"""

from typing import Any

import mlx.core as mx
from mlx import nn

from engine.cache.scheme import KvScheme

# MLX's CUDA build has no quantized matmul for so few columns as a cache begins with.
_DEVICES_WITHOUT_PRODUCT = ("cuda",)


class DenseReads:
    """A model whose layers are handed `_Floats` in place of quantized caches; everything else is the model's own."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """inputs: [B, L] ids; the result: logits [B, L, V]."""
        return self._model(inputs, cache=[_Floats(each) if hasattr(each, "bits") else each for each in cache])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Floats:
    """A quantized cache, alone or together, as mlx-lm's attention sees a float one: without `bits`."""

    __slots__ = ("_cache",)

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Writes quantized, returns all columns as floats: [B, H, columns, D] each."""
        cache = self._cache
        written = cache.update_and_fetch(keys, values)
        all_keys, all_values = (mx.dequantize(*part, group_size=cache.group_size, bits=cache.bits) for part in written)
        return all_keys, all_values

    def __getattr__(self, name: str) -> Any:
        if name in ("bits", "group_size"):
            raise AttributeError(name)
        return getattr(self._cache, name)


def attending_model(model: Any, device: str, scheme: KvScheme | None) -> Any:
    """The model as its forward is called on this device. device: as `load.device_name` says it."""
    return DenseReads(model) if scheme is not None and device in _DEVICES_WITHOUT_PRODUCT else model
