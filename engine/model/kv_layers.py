"""Which of a model's caches a KV scheme is for, and whether its attention can read them; refused by name at start."""

from collections.abc import Sequence
from typing import Any, Final

import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine.cache.plan import can_convert
from engine.cache.registry import NoKindError, kind_of
from engine.cache.scheme import KvScheme, LayerScheme
from engine.errors import EngineError
from protocol.errors import ErrorCode

# nemotron_h's marks for blocks that keep something; the others are feed-forward.
_CACHING_BLOCKS: Final = ("M", "*")


def quantized_caches(model: nn.Module, scheme: KvScheme) -> dict[int, LayerScheme]:
    """How each cache, by its place in the model's list, is quantized. Raises EngineError(BAD_SETTING) by layer."""
    caches = make_prompt_cache(model)
    layers = _layers_of(model, len(caches), scheme)
    if scheme.every is not None:
        return _uniform(caches, layers, scheme.every, scheme.flag)
    found: dict[int, LayerScheme] = {}
    for layer, layer_scheme in scheme.layers:
        if layer not in layers:
            raise _refused(f"{scheme.flag}: layer {layer} is missing or keeps no cache of its own")
        index = layers.index(layer)
        if not can_convert(caches[index]):
            raise _refused(f"{scheme.flag}: layer {layer} keeps {_words(caches[index])}, which cannot be quantized")
        found[index] = layer_scheme
    return found


def _uniform(caches: Sequence[Any], layers: Sequence[int], every: LayerScheme, flag: str) -> dict[int, LayerScheme]:
    """All keys and values; recurrent states are none and stay as they are."""
    for cache, layer in zip(caches, layers, strict=True):
        if not can_convert(cache) and _words(cache) != "recurrent states":
            raise _refused(f"{flag}: layer {layer} keeps {_words(cache)}, which cannot be quantized")
    found = {index: every for index, cache in enumerate(caches) if can_convert(cache)}
    if not found:
        raise _refused(f"{flag}: no layer of this model keeps keys and values")
    return found


def _layers_of(model: nn.Module, cache_count: int, scheme: KvScheme) -> list[int]:
    """The model's layer of each cache. Some layers keep none: feed-forward blocks, and those that share another's."""
    layers: Sequence[Any] = getattr(model, "layers", ())
    if cache_count == len(layers):
        return list(range(cache_count))
    blocks = [getattr(layer, "block_type", None) for layer in layers]
    caching = [index for index, block in enumerate(blocks) if block in _CACHING_BLOCKS]
    if len(caching) == cache_count:
        return caching
    arguments: Any = getattr(model, "args", None)
    if getattr(arguments, "num_kv_shared_layers", 0) == len(layers) - cache_count:
        return list(range(cache_count))
    raise _refused(f"{scheme.flag}: which of the model's {len(layers)} layers own its {cache_count} caches is unknown")


def _words(cache: Any) -> str:
    try:
        name = kind_of(cache).name
    except NoKindError:
        return type(cache).__name__
    match name:
        case "recurrent":
            return "recurrent states"
        case "chunked":
            return "a chunked cache"
        case _:
            return f"its cache in several parts ({name})"


def _refused(message: str) -> EngineError:
    return EngineError(ErrorCode.BAD_SETTING, message)
