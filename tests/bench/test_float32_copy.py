"""A float32 copy differs from its model in dtype alone."""

import json
from pathlib import Path

import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from bench.float32_copy import float32_copy


def test_weights_are_widened_and_the_rest_is_copied(tmp_path: Path) -> None:
    """Every weight equals its half-precision source; the config says float32; other files are the same."""
    source = tmp_path / "source"
    source.mkdir()
    weight = mx.array([1.5, -0.25], mx.float16)
    mx.save_safetensors(str(source / "model.safetensors"), {"w": weight})
    (source / "config.json").write_text(json.dumps({"torch_dtype": "float16", "hidden_size": 2}))
    (source / "tokenizer.json").write_text("{}")
    copy = float32_copy(source, tmp_path / "copy")
    copied = mx.load(str(copy / "model.safetensors"))["w"]
    assert (copied.dtype, copied.tolist()) == (mx.float32, [1.5, -0.25])
    config = json.loads((copy / "config.json").read_text())
    assert config == {"dtype": "float32", "torch_dtype": "float32", "hidden_size": 2}
    assert (copy / "tokenizer.json").read_text() == "{}"
