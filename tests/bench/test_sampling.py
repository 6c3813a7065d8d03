"""Every mix of samplers is timed beside the same bare loop, and rows of a mix differ."""

from pathlib import Path

import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from bench.random_model import TINY_LLAMA, build_random_model
from bench.sampling import MIXES, run_mix
from bench.step import Schedule
from engine.model.load import load_model
from engine.settings import Settings


@pytest.mark.parametrize("name", MIXES)
def test_every_mix_runs(tmp_path: Path, name: str) -> None:
    """Real runners on a tiny model: ratios over the bare loop, and the generator's over ours where it takes part."""
    folder = build_random_model(tmp_path / "tiny", TINY_LLAMA)
    mx.disable_compile()  # mlx-lm's samplers would start a C++ compiler each
    try:
        figures = run_mix(load_model(Settings(model=str(folder)), folder).model, name, 3, Schedule(1, 2))
    finally:
        mx.enable_compile()
    assert {"decode", "turn", "staggered"} <= figures.over_bare.keys()
    assert ("generator" in figures.step_ms) == (name not in ("penalties", "one_logprobs"))
    assert set(figures.generator_over) == ({"decode", "turn", "staggered"} if "generator" in figures.step_ms else set())
    assert min(figures.step_ms.values()) > 0


def test_the_samplers_of_a_mix_differ() -> None:
    """BatchGenerator makes one call for equal samplers: 32 different ones are what is compared."""
    for name in ("temperature", "top_k", "top_k_top_p", "top_p"):
        assert len({MIXES[name](index / 32).sampling for index in range(32)}) == 32
