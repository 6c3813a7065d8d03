"""Our Llama 4 against mlx-lm's own, with the same weights: alone it must say the same."""

import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ChunkedKVCache, make_prompt_cache

from engine.model.classes import model_classes
from tests.fakes.models import prompt_of
from tests.parity.architectures import WINDOW, config_of, random_model
from tests.parity.oracle import solo_tokens


def _library_model() -> nn.Module:
    module = importlib.import_module("mlx_lm.models.llama4")
    model = module.Model(module.ModelArgs.from_dict(config_of("llama4")))
    weights: Any = tree_flatten(random_model("llama4").parameters())
    model.load_weights(weights)
    return model


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 40])
def test_a_row_alone_says_what_mlx_lms_model_says(length: int) -> None:
    """Chunks of positions, rotation, norms and raised queries: 40 tokens over five chunks and more."""
    prompt = prompt_of(length, length)
    assert solo_tokens(random_model("llama4"), prompt, 40) == solo_tokens(_library_model(), prompt, 40)


@pytest.mark.parametrize("pieces", [[40], [8, 8, 8], [5, 9, 1, 1, 17], [1] * 20])
def test_logits_are_mlx_lms_however_a_prompt_is_cut(pieces: list[int]) -> None:
    """Cuts on, before and behind the ends of chunks; what is dropped early was seen by nobody."""
    models = [random_model("llama4"), _library_model()]
    caches = [make_prompt_cache(model) for model in models]
    tokens = prompt_of(sum(pieces), 3)
    start = 0
    for piece in pieces:
        inputs = mx.array([tokens[start : start + piece]])
        start += piece
        ours, theirs = (model(inputs, cache=cache) for model, cache in zip(models, caches, strict=True))
        assert mx.allclose(ours, theirs, atol=1e-4).item()
    assert mx.allclose(models[0](mx.array([tokens])), models[1](mx.array([tokens])), atol=1e-4).item()


def test_ended_chunks_are_dropped_once_a_chunk() -> None:
    """Alone a row never holds more than a chunk and what a forward adds; most steps copy nothing."""
    model = random_model("llama4")
    caches = make_prompt_cache(model)
    starts: list[int] = []
    for token in prompt_of(5 * WINDOW, 1):
        model(mx.array([[token]]), cache=caches)
        cache = caches[0]
        assert isinstance(cache, ChunkedKVCache)
        assert cache.offset - cache.start_position <= WINDOW + 1
        starts.append(cache.start_position)
    assert sorted(set(starts)) == [chunk * WINDOW for chunk in range(5)]


def test_other_models_are_mlx_lms() -> None:
    """Only what cannot take rows at positions of their own is ours."""
    assert model_classes({"model_type": "llama"}).model.__module__ == "mlx_lm.models.llama"
    assert model_classes({"model_type": "llama4"}).model.__module__ == "engine.model.llama4"
    with pytest.raises(ValueError, match="Model type nonsense not supported"):
        model_classes({"model_type": "nonsense"})
