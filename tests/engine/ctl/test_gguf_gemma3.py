"""A tiny Gemma 3 file: what mlx-lm computes from the converted folder is what the file itself says."""

import json
from pathlib import Path

from engine import openblas  # isort: skip  # noqa: F401  # before MLX

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from engine.ctl.failure import CommandError
from engine.ctl.gguf_convert import MODEL_FILES, convert_gguf
from engine.ctl.gguf_gemma3 import bfloat16_bits
from engine.model.load import load_model
from engine.settings import Settings
from tests.engine.ctl.gemma3_reference import Gemma3Reference
from tests.engine.ctl.tiny_gemma3_gguf import HEAD_DIM, HEADS, HIDDEN, LAYERS, WINDOW, TinyGemma3Gguf, pieces


def _converted(tmp_path: Path, tiny: TinyGemma3Gguf) -> Path:
    tiny.write(tmp_path / "tiny.gguf")
    folder = tmp_path / "model"
    folder.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", folder, lambda done, total: None)
    return folder


def test_the_converted_model_computes_what_the_file_says(tmp_path: Path) -> None:
    """Four windows of logits against a forward in numpy: names, norms, windows, rotations and scales are right."""
    folder = _converted(tmp_path, TinyGemma3Gguf())
    model = load_model(Settings(model=str(folder)), folder).model
    ids = [(7 * position + position**2) % len(pieces()) for position in range(4 * WINDOW)]
    cache = make_prompt_cache(model)
    chunks = [model(mx.array([ids[start : start + 10]]), cache=cache)[0] for start in range(0, len(ids), 10)]
    expected = Gemma3Reference(tmp_path / "tiny.gguf").logits(ids)
    np.testing.assert_allclose(np.array(mx.concatenate(chunks)), expected, atol=1e-4)


def test_norms_lose_the_one_that_the_file_adds(tmp_path: Path) -> None:
    """Bit for bit: every value of this file is a bfloat16."""
    folder = _converted(tmp_path, TinyGemma3Gguf())
    stored = TinyGemma3Gguf().write(tmp_path / "again.gguf")
    found: dict[str, mx.array] = mx.load(str(folder / "model.safetensors"))  # pyright: ignore[reportAssignmentType]
    assert {weight.dtype for weight in found.values()} == {mx.bfloat16}
    names = {
        "model.norm": stored["output_norm.weight"] - 1,
        "model.layers.5.self_attn.q_norm": stored["blk.5.attn_q_norm.weight"] - 1,
        "model.layers.6.post_attention_layernorm": stored["blk.6.post_attention_norm.weight"] - 1,
        "model.layers.6.pre_feedforward_layernorm": stored["blk.6.ffn_norm.weight"] - 1,
        "model.layers.0.self_attn.o_proj": stored["blk.0.attn_output.weight"],
    }
    for name, expected in names.items():
        np.testing.assert_array_equal(np.array(found[f"{name}.weight"].astype(mx.float32)), expected, err_msg=name)


def test_configuration_has_every_field_a_loader_needs(tmp_path: Path) -> None:
    """What the file leaves to its reader is filled in."""
    folder = _converted(tmp_path, TinyGemma3Gguf())
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("gemma3_text", LAYERS, HIDDEN)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (HEADS, 1, HEAD_DIM)
    assert (config["sliding_window"], config["sliding_window_pattern"]) == (WINDOW, 6)
    assert (config["rope_theta"], config["rope_local_base_freq"]) == (1_000_000.0, 10_000.0)
    assert (config["query_pre_attn_scalar"], config["rms_norm_eps"]) == (HEAD_DIM, 1e-6)
    assert (config["bos_token_id"], config["eos_token_id"], config["tie_word_embeddings"]) == (2, 1, True)
    assert sorted(path.name for path in folder.iterdir()) == sorted(MODEL_FILES)


@pytest.mark.parametrize(
    ("tiny", "said"),
    [
        (TinyGemma3Gguf(without="blk.3.ffn_norm.weight"), "lacks model.layers.3.pre_feedforward_layernorm.weight"),
        (TinyGemma3Gguf(layers=62), "27B scales its attention"),
        (TinyGemma3Gguf(numbers={"gemma3.attention.value_length": 16}), "another width than keys"),
        (TinyGemma3Gguf(add_space_prefix=True), "a space before a text"),
        (TinyGemma3Gguf(scores=[0.0]), "1 scores"),
    ],
)
def test_what_cannot_be_carried_over_exactly_is_refused_by_name(
    tmp_path: Path, tiny: TinyGemma3Gguf, said: str
) -> None:
    """A model that would be subtly wrong is not made."""
    with pytest.raises(CommandError) as failure:
        _converted(tmp_path, tiny)
    assert said in failure.value.message


def test_rounds_to_the_nearest_bfloat16_and_halves_to_even() -> None:
    """As MLX does."""
    values = np.random.default_rng(3).normal(0, 1, 4_096).astype(np.float32)
    values[:4] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF817FFF], np.uint32).view(np.float32)
    expected = mx.view(mx.array(values).astype(mx.bfloat16), mx.uint16)
    np.testing.assert_array_equal(bfloat16_bits(values), np.array(expected))
