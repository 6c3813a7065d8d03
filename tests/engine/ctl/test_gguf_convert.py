"""A tiny GGUF file through the converter."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.ctl.failure import CommandError
from engine.ctl.gguf_convert import MODEL_FILES, convert_gguf
from tests.engine.ctl.tiny_gguf import HEAD_DIM, HEADS, TEMPLATE, TinyGguf


def convert(tmp_path: Path, tiny: TinyGguf) -> tuple[Path, dict[str, np.ndarray]]:
    """Writes and converts; returns the model folder and the weights that went in."""
    source, folder = tmp_path / "tiny.gguf", tmp_path / "model"
    weights = tiny.write(source)
    folder.mkdir()
    convert_gguf(source, folder, lambda done, total: None)
    return folder, weights


def test_weights_come_back_bit_for_bit_under_their_names(tmp_path: Path) -> None:
    """float16 in, float16 out: names mapped, q and k rows un-permuted."""
    folder, weights = convert(tmp_path, TinyGguf())
    found = load_file(folder / "model.safetensors")
    assert sorted(found) == sorted(weights)
    for name, weight in weights.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


def test_quantized_weights_are_near(tmp_path: Path) -> None:
    """Q8_0 keeps each weight within a 127th of its block's largest."""
    folder, weights = convert(tmp_path, TinyGguf(quantized=gguf.GGMLQuantizationType.Q8_0))
    name = "model.layers.1.self_attn.q_proj.weight"
    found = load_file(folder / "model.safetensors")[name]
    assert found.dtype == np.float16
    assert float(np.abs(found.astype(np.float32) - weights[name]).max()) < float(np.abs(weights[name]).max()) / 127


def test_configuration_has_every_field_a_loader_needs(tmp_path: Path) -> None:
    """config.json and generation_config.json of the file's metadata."""
    folder, _ = convert(tmp_path, TinyGguf())
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["head_dim"]) == ("llama", 2, HEAD_DIM)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, 2)
    assert (config["hidden_size"], config["intermediate_size"]) == (HEADS * HEAD_DIM, 48)
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-5, 100_000.0)
    assert (config["max_position_embeddings"], config["tie_word_embeddings"]) == (512, True)
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == TEMPLATE
    assert sorted(path.name for path in folder.iterdir()) == sorted(MODEL_FILES)


@pytest.mark.parametrize(
    ("tiny", "said"),
    [
        (TinyGguf(architecture="phi3"), "architecture 'phi3' is not converted, only 'llama' and 'gemma3'"),
        (TinyGguf(rope_scaling="yarn"), "rope scaling 'yarn'"),
        (TinyGguf(rotated=HEAD_DIM // 2), "rotates 4 of 8"),
        (TinyGguf(without="blk.1.ffn_up.weight"), "lacks model.layers.1.mlp.up_proj.weight"),
        (TinyGguf(extra="rope_freqs.weight"), "'rope_freqs.weight' has no place"),
        (TinyGguf(tokenizer="bert"), "tokenizer is 'bert'"),
        (TinyGguf(pre="qwen2"), "pre-tokenizer 'qwen2'"),
        (TinyGguf(merges=["he"]), "no pair: 'he'"),
    ],
)
def test_what_cannot_be_carried_over_exactly_is_refused_by_name(tmp_path: Path, tiny: TinyGguf, said: str) -> None:
    """A model that would be subtly wrong is not made."""
    with pytest.raises(CommandError) as failure:
        convert(tmp_path, tiny)
    assert said in failure.value.message


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Neither another format nor a truncated file is read."""
    source = tmp_path / "bad.gguf"
    source.write_bytes(b"not a GGUF file at all")
    with pytest.raises(CommandError, match=r"bad\.gguf is not a readable GGUF file"):
        convert_gguf(source, tmp_path, lambda done, total: None)
    TinyGguf().write(source)
    source.write_bytes(source.read_bytes()[:-20_000])
    with pytest.raises(CommandError, match="is not a readable GGUF file"):
        convert_gguf(source, tmp_path, lambda done, total: None)


def test_progress_counts_every_tensor(tmp_path: Path) -> None:
    """From 1 to the total, in steps of one."""
    weights = TinyGguf().write(tmp_path / "tiny.gguf")
    calls: list[tuple[int, int]] = []
    convert_gguf(tmp_path / "tiny.gguf", tmp_path, lambda done, total: calls.append((done, total)))
    assert calls == [(done, len(weights)) for done in range(1, len(weights) + 1)]
