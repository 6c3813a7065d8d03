"""Every kind of cache on a whole model, and which tests hold each of them to which behaviour."""

import functools
from typing import Any, Final, NamedTuple

from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.support import Support, probe_batching
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import random_model
from tests.parity.oracle import solo_tokens


class Kept(NamedTuple):
    """A model of tests/parity/architectures.py, and the bits of its KV cache."""

    model: str
    bits: int | None = None


KINDS: Final = {
    "plain": Kept("llama"),
    "sliding window": Kept("gemma3_text"),
    "chunked": Kept("llama4"),
    "recurrent": Kept("mamba2"),
    "hybrid": Kept("qwen3_next"),
    "latent": Kept("deepseek_v32"),
    "composite": Kept("falcon_h1"),
    "quantized": Kept("llama", 8),
    "quantized sliding window": Kept("gemma3_text", 8),
}
ALL: Final = tuple(KINDS)
WINDOWED: Final = ("sliding window", "chunked", "quantized sliding window")
QUANTIZED: Final = ("quantized", "quantized sliding window")
# States of fixed size know no position.
POSITIONED: Final = tuple(kind for kind in KINDS if kind != "recurrent")


@functools.cache
def support_of(kind: str) -> Support:
    """How the engine serves it."""
    kept = KINDS[kind]
    scheme = None if kept.bits is None else KvScheme("--kv-bits", every=LayerScheme(kept.bits, 32))
    return probe_batching(random_model(kept.model), 32, scheme)


def driver_of(kind: str, weights_bytes: int = 1 << 30, **options: Any) -> LoopDriver:
    """An engine's loop on it. weights_bytes: so many keep rows in one group."""
    model = random_model(KINDS[kind].model)
    plan = support_of(kind).cache_plan
    return LoopDriver(model, facts_of(model), cache_plan=plan, weights_bytes=weights_bytes, **options)


@functools.cache
def alone(kind: str, length: int, start: int, count: int) -> list[int]:
    """What a row says alone: by mlx-lm's generator, or by our serial run where mlx-lm has no such cache."""
    prompt = prompt_of(length, start)
    if KINDS[kind].bits is None:
        return solo_tokens(random_model(KINDS[kind].model), prompt, count)
    driver = driver_of(kind)
    driver.submit("row", prompt, max_tokens=count)
    driver.run_until_idle()
    return driver.tokens("row")


class Held(NamedTuple):
    """A behaviour that a test holds these kinds to. test: file below tests/, and function."""

    code: str
    words: str
    kinds: tuple[str, ...]
    test: str


_EVERY = "parity/test_every_kind.py"
_PREFIXES = "parity/test_prefixes.py"
HELD: Final = (
    Held("C1", "rows that start together, B=2 and 4", ALL, f"{_EVERY}::test_rows_that_start_together"),
    Held("C2", "join in mid decode, leave, join again", ALL, f"{_EVERY}::test_rows_that_come_and_go"),
    Held("C3", "three join on a row's second token, past three wraps", WINDOWED, f"{_EVERY}::test_three_join_early"),
    Held("C3", "400 tokens past the wrap", ALL, "engine/cache/test_kinds.py::test_a_long_run_past_the_window"),
    Held(
        "C3",
        "Gemma 3 270M, prompts past 512",
        WINDOWED[:1],
        "parity/test_gemma3.py::test_rows_past_the_window_equal_the_oracle_and_their_solo_runs",
    ),
    Held(
        "C3",
        "a shared-prefix hit, then a join",
        ALL,
        f"{_PREFIXES}::test_hits_join_a_running_batch",
    ),
    Held(
        "C4",
        "extract(merge(rows)) = rows, byte for byte",
        ALL,
        "engine/cache/test_kinds.py::test_what_was_merged_comes_back",
    ),
    Held(
        "C4", "any sequence of join, step, leave", ALL, "engine/cache/test_kinds.py::test_rows_live_as_they_would_alone"
    ),
    Held("C4", "extend of padded to padded", ALL, "engine/cache/test_kinds.py::test_padded_batches_become_one"),
    Held("C4", "filter to one", ALL, "engine/cache/test_kinds.py::test_the_last_row_has_the_solo_class"),
    Held("C4", "filter to none", ALL, f"{_EVERY}::test_nothing_is_left_when_all_leave"),
    Held(
        "C5",
        "unpadded bit-equal, padded close",
        QUANTIZED,
        "parity/test_quantized.py::test_unpadded_rows_are_bit_exact_and_padded_ones_close",
    ),
    Held("C6", "bits per layer", QUANTIZED, "parity/test_quantized.py::test_a_scheme_may_quantize_some_layers_only"),
    Held(
        "C6",
        "what cannot be quantized is refused",
        ALL,
        "parity/test_quantized.py::test_what_cannot_be_quantized_is_refused_by_name",
    ),
    Held(
        "C7",
        "converted at chunk ends and before the join only",
        QUANTIZED,
        f"{_EVERY}::test_caches_are_converted_between_forwards",
    ),
    Held("C7", "one layer twice", QUANTIZED, "engine/test_batch.py::test_conversion_has_one_layer_twice"),
    Held("C8", "the table below", ALL, "parity/test_table.py::test_the_readme_says_what_the_engine_finds"),
    Held(
        "C9",
        "a position that rows share would be noticed",
        POSITIONED,
        f"{_EVERY}::test_a_shared_position_would_be_noticed",
    ),
    Held("B11", "a lone row has solo classes", ALL, "engine/cache/test_kinds.py::test_the_last_row_has_the_solo_class"),
    Held(
        "B13",
        "a row that can share no step",
        QUANTIZED[:1],
        "engine/test_serial_rows.py::test_a_serial_row_under_sustained_load_completes",
    ),
    Held(
        "B16",
        "memory under the ledger, a long row beside short ones",
        ALL,
        f"{_EVERY}::test_memory_stays_under_the_ledger",
    ),
    Held(
        "B16",
        "joins and leaves have one layer twice",
        ("plain", "sliding window", "quantized"),
        "engine/test_batch.py::test_joins_and_leaves_have_one_layer_twice",
    ),
    Held("E6", "the same prompt again computes one token", ALL, f"{_PREFIXES}::test_an_exact_hit_computes_one_token"),
    Held(
        "E7",
        "three turns of a chat with tools, reply tokenised otherwise",
        ALL,
        "parity/test_conversations.py::test_turns_reuse_the_prompt_before_them",
    ),
)
