"""Random models in memory for engine tests: built once a run, checked to be able to fail a test."""

from engine import openblas  # isort: skip  # before MLX

import functools
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import load_model

from bench.random_model import TINY_LLAMA, TINY_QWEN2, TINY_QWEN3, RandomModelSpec, build_random_model

SPECS = {"llama": TINY_LLAMA, "qwen2": TINY_QWEN2, "qwen3": TINY_QWEN3}

__all__ = ["SPECS", "fresh_model", "openblas", "prompt_of", "tiny_model", "wide_headed_model"]


@functools.cache
def tiny_model(architecture: str) -> nn.Module:
    """A random model of this architecture, float32."""
    return fresh_model(architecture)


def fresh_model(architecture: str) -> nn.Module:
    """The same, for a test that changes it."""
    with tempfile.TemporaryDirectory() as folder:
        model, _ = load_model(build_random_model(Path(folder) / architecture, SPECS[architecture]))
        mx.eval(model.parameters())
    return model


@functools.cache
def wide_headed_model() -> nn.Module:
    """A random llama whose heads are wide enough to quantize their keys in groups of 32."""
    with tempfile.TemporaryDirectory() as folder:
        model, _ = load_model(build_random_model(Path(folder) / "wide", RandomModelSpec(heads=2, kv_heads=1)))
        mx.eval(model.parameters())
    return model


def prompt_of(length: int, start: int = 0) -> list[int]:
    """A prompt of plain tokens; different starts give different prompts."""
    return [3 + (start * 37 + position * 11) % 200 for position in range(length)]
