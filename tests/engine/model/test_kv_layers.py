"""Which caches a scheme is for: found on a model without weights, by the model's own layer numbers."""

import pytest

from engine.cache.scheme import KvScheme, LayerScheme
from engine.errors import EngineError
from engine.model.kv_layers import quantized_caches
from protocol.errors import ErrorCode
from tests.parity.architectures import empty_model

SCHEME = LayerScheme(4, 32)


@pytest.mark.parametrize(
    ("name", "layers", "places"),
    [
        ("llama", (0, 3), (0, 3)),
        ("gemma3_text", (0, 1), (0, 1)),
        # Its third and sixth blocks are attention; feed-forward ones keep nothing.
        ("nemotron_h", (2, 5), (1, 3)),
        # The last two of its layers share the caches of the first two.
        ("gemma4_text", (0, 1), (0, 1)),
    ],
)
def test_layers_are_the_models_own(name: str, layers: tuple[int, ...], places: tuple[int, ...]) -> None:
    """By place in the model's list of caches, which may be shorter than that of its layers."""
    scheme = KvScheme("--kv-scheme", layers=tuple((layer, SCHEME) for layer in layers))
    assert dict.fromkeys(places, SCHEME) == quantized_caches(empty_model(name), scheme)


@pytest.mark.parametrize(
    ("name", "layer", "words"),
    [
        ("nemotron_h", 0, "layer 0 keeps recurrent states, which cannot be quantized"),
        ("nemotron_h", 1, "layer 1 is missing or keeps no cache of its own"),
        ("gemma4_text", 3, "layer 3 is missing or keeps no cache of its own"),
        ("llama4", 2, "layer 2 keeps a chunked cache, which cannot be quantized"),
        ("falcon_h1", 1, "layer 1 keeps its cache in several parts"),
    ],
)
def test_a_layer_that_cannot_be_quantized_is_named(name: str, layer: int, words: str) -> None:
    """C6: refused with the layer's number, from the empty model: no weight has been read."""
    with pytest.raises(EngineError, match=words) as refused:
        quantized_caches(empty_model(name), KvScheme("--kv-scheme", layers=((layer, SCHEME),)))
    assert refused.value.code == ErrorCode.BAD_SETTING
