"""What is said to batch does batch: declared kinds, and the probe on two padded rows."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import gemma2
from mlx_lm.models.cache import ConcatenateKVCache, KVCache

from engine.cache.masks import GROUPED_AXES
from engine.model.support import probe_batching
from tests.fakes.models import tiny_model


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_plain_attention_models_batch(architecture: str) -> None:
    """Full-attention models pass the probe."""
    assert probe_batching(tiny_model(architecture), 32).batching.mode == "batch"


def test_one_row_is_serial_by_choice() -> None:
    """--max-rows 1 is the determinism pin, and says so."""
    batching = probe_batching(tiny_model("llama"), 1).batching
    assert (batching.mode, batching.reason) == ("serial", "--max-rows is 1")


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 4])
def test_own_attention_over_grouped_heads_gets_masks_of_its_shape(kv_heads: int) -> None:
    """gemma2 broadcasts masks over an axis of its own: one of mlx-lm's shape fails, or is wrong without an error."""
    arguments = gemma2.ModelArgs(
        model_type="gemma2",
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=2 * kv_heads,
        head_dim=8,
        rms_norm_eps=1e-6,
        vocab_size=64,
        num_key_value_heads=kv_heads,
    )
    support = probe_batching(gemma2.Model(arguments), 32)
    assert support.batching.mode == "batch"
    assert support.cache_plan.mask_axes == GROUPED_AXES


class _Brittle(nn.Module):
    """A model whose attention takes one row alone."""

    @property
    def layers(self) -> list[int]:
        return [0]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        states = mx.ones((tokens.shape[0], 1, tokens.shape[1], 8))
        cache[0].update_and_fetch(states, states)
        return tokens.reshape(1, tokens.shape[1], 1).astype(mx.float32) @ mx.ones((1, 8))


def test_a_model_whose_forward_fails_on_two_rows_is_serial() -> None:
    """A forward that raises is found at start, and why is said in one line."""
    batching = probe_batching(_Brittle(), 32).batching
    assert batching.mode == "serial"
    assert "different lengths" in batching.reason
    assert "\n" not in batching.reason


class _Deaf(nn.Module):
    """A model that ignores masks and positions: each row sees all columns, padding too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = mx.random.normal((16, 8), key=mx.random.key(1)) * 3

    @property
    def layers(self) -> list[int]:
        return [0]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        states = self.embedding[tokens][:, None]
        keys, _ = cache[0].update_and_fetch(states, states)
        return mx.broadcast_to(keys.mean(axis=2), (tokens.shape[0], 1, 8))[:, :, :] @ self.embedding.T


def test_a_model_that_ignores_padding_is_serial() -> None:
    """A model that would answer wrongly when padded is found out by its logits."""
    batching = probe_batching(_Deaf(), 32).batching
    assert batching.mode == "serial"
    assert "answer differently" in batching.reason


def test_foreign_caches_are_serial_without_a_probe() -> None:
    """Layers without a kind are named; the model is not run."""

    class Foreign(nn.Module):
        def make_cache(self) -> list[Any]:
            return [KVCache(), ConcatenateKVCache()]

    batching = probe_batching(Foreign(), 32).batching
    assert batching.mode == "serial"
    assert "ConcatenateKVCache" in batching.reason
