"""Quantized KV in the batch, against mlx-lm's serial run of the same scheme (its rotating cache has no such form)."""

from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from engine.cache.plan import CachePlan
from engine.cache.scheme import KvScheme, LayerScheme
from engine.errors import EngineError
from engine.model.support import Support, _filled, _stacked, probe_batching
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import WINDOW, random_model

UNIFORM = KvScheme("--kv-bits", every=LayerScheme(8, 32))
# Whose layers' caches are all of mlx-lm's, so that its own serial quantized run is the oracle.
PLAIN = ["llama", "qwen3", "qwen3_moe", "glm4_moe", "qwen3_next", "nemotron_h"]
# Kullback-Leibler divergence of a padded row's next-token distribution from its serial one. Measured on CPU float32 at
# 4 and 8 bits: 0 for plain layers (7 models), at most 1.0e-6 for sliding windows, whose ring sums in another order.
MOST_DIVERGENCE = 1e-5


def _support(name: str, scheme: KvScheme) -> Support:
    return probe_batching(random_model(name), 32, scheme)


def _run(model: nn.Module, support: Support, prompts: list[list[int]], count: int) -> list[list[int]]:
    driver = LoopDriver(model, facts_of(model), cache_plan=support.cache_plan)
    for index, prompt in enumerate(prompts):
        driver.submit(str(index), prompt, max_tokens=count)
    driver.run_until_idle()
    return [driver.tokens(str(index)) for index in range(len(prompts))]


def _oracle(model: nn.Module, prompt: list[int], count: int, bits: int, start: int = 0) -> list[int]:
    steps = generate_step(
        mx.array(prompt),
        model,
        max_tokens=count,
        prefill_step_size=128,
        kv_bits=bits,
        kv_group_size=32,
        quantized_kv_start=start,
    )
    return [token for token, _ in steps]


@pytest.mark.parametrize(("name", "bits"), [*((name, 4) for name in PLAIN), ("llama", 8), ("qwen3_next", 8)])
def test_unpadded_rows_equal_the_serial_run(name: str, bits: int) -> None:
    """C5: rows of one length, alone and together, say what mlx-lm's own quantized run says."""
    support = _support(name, KvScheme("--kv-bits", every=LayerScheme(bits, 32)))
    assert support.batching.mode == "batch"
    prompts = [prompt_of(21, start) for start in range(3)]
    expected = [_oracle(random_model(name), prompt, 40, bits) for prompt in prompts]
    assert _run(random_model(name), support, prompts, 40) == expected
    assert _run(random_model(name), support, prompts[:1], 40) == expected[:1]


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_next"])
@pytest.mark.parametrize("bits", [4, 8])
def test_unpadded_rows_are_bit_exact_and_padded_ones_close(name: str, bits: int) -> None:
    """C5: over three wraps of a sliding window, against each row alone: logits of one length, divergence of several."""
    assert _compared(name, bits, (13, 13, 13)).difference == 0.0
    assert _compared(name, bits, (25, 4, 11)).divergence < MOST_DIVERGENCE


class _Compared(NamedTuple):
    """The worst over all rows and steps: of a logit, and of a row's distribution."""

    difference: float
    divergence: float


def _compared(name: str, bits: int, lengths: tuple[int, ...]) -> _Compared:
    model = random_model(name)
    plan = _support(name, KvScheme("--kv-bits", every=LayerScheme(bits, 32))).cache_plan
    prompts = [prompt_of(length, start) for start, length in enumerate(lengths)]
    together = _stacked(model, plan, prompts)
    alone = [_filled(model, plan, prompt) for prompt in prompts]
    worst = _Compared(0.0, 0.0)
    for step in range(3 * WINDOW):
        token = 7 + 5 * step
        got = model(mx.array([[token]] * len(prompts)), cache=together.caches)[:, -1, :]
        together.layout.advance(1)
        each = mx.concatenate([model(mx.array([[token]]), cache=caches)[:, -1, :] for caches in alone])
        difference = mx.abs(each - got).max().item()
        worst = _Compared(max(worst.difference, difference), max(worst.divergence, _divergence(each, got)))
    return worst


def _divergence(expected: mx.array, got: mx.array) -> float:
    expected, got = (logits - mx.logsumexp(logits, axis=-1, keepdims=True) for logits in (expected, got))
    return mx.sum(mx.exp(expected) * (expected - got), axis=-1).max().item()


def test_joins_and_leaves_among_sliding_windows_equal_the_rows_alone() -> None:
    """C3, C5: with every layer quantized, rows that come and go say what each says alone."""
    model, support = random_model("gemma3_text"), _support("gemma3_text", UNIFORM)
    lengths = [5, 30, 14]
    alone = [_run(model, support, [prompt_of(length, length)], 40)[0] for length in lengths]
    driver = LoopDriver(model, facts_of(model), cache_plan=support.cache_plan)
    for length in lengths:
        driver.submit(str(length), prompt_of(length, length), max_tokens=40)
        driver.turn(9)
    driver.run_until_idle()
    assert alone == [driver.tokens(str(length)) for length in lengths]


@pytest.mark.parametrize(
    ("name", "layers", "places"),
    [("nemotron_h", (2, 5), (1, 3)), ("llama", (0, 3), (0, 3)), ("gemma3_text", (0, 1), (0, 1))],
)
def test_a_scheme_may_quantize_some_layers_only(name: str, layers: tuple[int, int], places: tuple[int, int]) -> None:
    """C6: each layer's bits, by the model's own layer numbers; caches of feed-forward blocks do not exist."""
    schemes = (LayerScheme(4, 32), LayerScheme(8, 32))
    support = _support(name, KvScheme("--kv-scheme", layers=tuple(zip(layers, schemes, strict=True))))
    assert support.batching.mode == "batch"
    assert dict(support.cache_plan.quantized) == dict(zip(places, schemes, strict=True))
    prompts = [prompt_of(18, start) for start in range(2)]
    model = random_model(name)
    assert _run(model, support, prompts, 30) == [_run(model, support, [prompt], 30)[0] for prompt in prompts]


@pytest.mark.parametrize(
    ("name", "scheme", "words"),
    [
        ("gpt_oss", UNIFORM, ("gpt_oss", "sinks")),
        ("deepseek_v3", UNIFORM, ("deepseek_v3", "does not run")),
        ("glm4_moe_lite", UNIFORM, ("glm4_moe_lite", "does not run")),
        ("gemma2", UNIFORM, ("gemma2", "does not run")),
        ("gemma4_text", UNIFORM, ("gemma4_text", "does not run")),
        ("deepseek_v32", UNIFORM, ("layer 0", "several parts")),
        ("falcon_h1", UNIFORM, ("layer 0", "several parts")),
        ("llama4", UNIFORM, ("layer 0", "a chunked cache")),
        ("mamba2", UNIFORM, ("no layer", "keys and values")),
        ("nemotron_h", KvScheme("--kv-scheme", layers=((1, LayerScheme(4, 32)),)), ("layer 1", "no cache")),
        ("nemotron_h", KvScheme("--kv-scheme", layers=((0, LayerScheme(4, 32)),)), ("layer 0", "recurrent")),
        ("llama", KvScheme("--kv-scheme", layers=((9, LayerScheme(4, 32)),)), ("layer 9", "missing")),
        ("llama", KvScheme("--kv-bits", every=LayerScheme(4, 128)), ("llama", "does not run")),
    ],
)
def test_what_cannot_be_quantized_is_refused_by_name(name: str, scheme: KvScheme, words: tuple[str, str]) -> None:
    """C6, C7: the flag, and the layer or the attention that does not take it."""
    with pytest.raises(EngineError) as caught:
        _support(name, scheme)
    assert all(word in caught.value.message for word in (scheme.flag, *words))


@pytest.mark.parametrize("start", [10, 40])
def test_a_late_start_is_served_serially_and_equals_the_serial_run(start: int) -> None:
    """C6: rows are quantized once they are long enough, in the prompt or in mid decode; those decode alone."""
    support = _support("llama", KvScheme("--kv-bits", every=LayerScheme(4, 32), start_tokens=start))
    assert support.batching.mode == "batch"
    assert f"rows that reach --quantized-kv-start {start} decode alone" in support.batching.reason
    model = random_model("llama")
    driver = LoopDriver(model, cache_plan=support.cache_plan)
    for id_ in ("row", "next"):
        driver.submit(id_, prompt_of(20, 1), max_tokens=50)
    driver.turn(5)
    assert len(driver.loop._batch) == 1
    driver.run_until_idle()
    assert [driver.tokens(id_) for id_ in ("row", "next")] == [_oracle(model, prompt_of(20, 1), 50, 4, start)] * 2


def test_empty_caches_are_never_converted() -> None:
    """C7: a prompt of one token is forwarded in float, then converted."""
    model = random_model("llama")
    plan = _support("llama", UNIFORM).cache_plan
    caches = make_prompt_cache(model)
    assert list(plan.convert(caches, 0)) == []
    assert _run(model, Support(_support("llama", UNIFORM).batching, plan), [[5]], 30) == [_oracle(model, [5], 30, 8)]


def test_without_a_scheme_nothing_is_converted() -> None:
    """The default plan leaves caches as the model makes them."""
    caches = make_prompt_cache(random_model("llama"))
    model = random_model("llama")
    model(mx.array([[4, 5]]), cache=caches)
    assert list(CachePlan().convert(caches, 2)) == []
