"""Quantized caches read as floats: the same text as by a product with them, and the same bytes kept."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.adapters import Adapters
from engine.model.dense_reads import DenseReads, attending_model
from engine.model.support import probe_batching
from tests.fakes.adapters import build_adapter
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import fresh_model, prompt_of
from tests.parity.architectures import random_model

SCHEME = KvScheme("--kv-bits", every=LayerScheme(8, 32))


def _tokens(model: Any) -> list[list[int]]:
    """Rows that join late and leave early, on a model whose caches are quantized."""
    support = probe_batching(model, 32, SCHEME)
    assert support.batching.mode == "batch"
    driver = LoopDriver(model, facts_of(model), cache_plan=support.cache_plan)
    for index, (length, count) in enumerate([(21, 30), (5, 9), (30, 12)]):
        driver.submit(str(index), prompt_of(length, index), max_tokens=count)
        driver.turn(4)
    driver.run_until_idle()
    return [driver.tokens(str(index)) for index in range(3)]


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_next"])
def test_rows_say_what_they_say_by_a_product_with_packed_columns(name: str) -> None:
    """Alone and together, plain and sliding, whoever comes and goes."""
    assert _tokens(DenseReads(random_model(name))) == _tokens(random_model(name))


def test_caches_stay_quantized() -> None:
    """What is kept has the scheme's bits; only what attention sees has not."""
    model = random_model("llama")
    reads = DenseReads(model)
    caches = [QuantizedKVCache(32, 8) for _ in make_prompt_cache(reads)]  # pyright: ignore[reportArgumentType]
    twins = [QuantizedKVCache(32, 8) for _ in caches]
    inputs = mx.array([prompt_of(9)])
    assert mx.allclose(reads(inputs, cache=caches), model(inputs, cache=twins), atol=1e-4).item()
    assert [cache.nbytes for cache in caches] == [cache.nbytes for cache in twins]
    # The first layer's input is the same on both sides.
    assert all(mx.array_equal(*pair).item() for pair in zip(caches[0].keys or (), twins[0].keys or (), strict=True))


def test_attention_needs_no_quantized_form() -> None:
    """Sinks, which mlx-lm's quantized attention refuses, show that no product with packed columns is asked for."""
    assert len(_tokens(DenseReads(random_model("gpt_oss")))[0]) == 30


@pytest.mark.parametrize(("device", "scheme", "is_dense"), [("cuda", SCHEME, True), ("cuda", None, False)])
def test_only_where_the_device_needs_it(device: str, scheme: KvScheme | None, is_dense: bool) -> None:
    """By device class, and only with a scheme: everywhere else the model is called as it is."""
    model = random_model("llama")
    assert isinstance(attending_model(model, device, scheme), DenseReads) == is_dense
    assert attending_model(model, "cpu", SCHEME) is model
    assert attending_model(model, "metal", SCHEME) is model


def test_a_mounted_adapter_is_on_under_it(tmp_path: Path) -> None:
    """What is hung into the model between two forwards is what the wrapped forward computes."""
    folder = build_adapter(tmp_path / "a", "llama", 1)
    model, plain = fresh_model("llama"), fresh_model("llama")
    adapters, expected = Adapters(model, forward=DenseReads(model)), Adapters(plain)
    inputs = mx.array([prompt_of(9)])
    for adapter, twin in [(adapters.mount("a", folder), expected.mount("a", folder)), (None, None)]:
        forward, reference = adapters.model_for(adapter), expected.model_for(twin)
        assert isinstance(forward, DenseReads)
        logits, wanted = (each(inputs, cache=make_prompt_cache(plain)) for each in (forward, reference))
        assert mx.array_equal(logits, wanted).item()
