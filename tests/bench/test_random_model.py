"""Random test models load as mlx-lm models, are the same each time, and can make a test fail."""

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("mlx.core")

from mlx_lm.utils import load_model
from tokenizers import Tokenizer

from bench import random_model
from bench.random_model import PRESETS, TINY_LLAMA, GreedyRun, build_random_model, greedy_run


@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-qwen2", "tiny-qwen3"])
def test_a_tiny_model_loads_and_can_fail_a_test(tmp_path: Path, preset: str) -> None:
    """Every tiny preset loads strictly and its greedy text passes the check it was built under."""
    folder = build_random_model(tmp_path / "model", PRESETS[preset])
    model, config = load_model(folder)
    prompt_ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(random_model.CHECKED_PROMPT).ids
    assert greedy_run(model, prompt_ids).can_fail
    assert config["vocab_size"] == 512


def test_the_same_spec_gives_the_same_files(tmp_path: Path) -> None:
    """Two builds of one spec are equal byte for byte, and another seed differs."""
    first = build_random_model(tmp_path / "first", TINY_LLAMA)
    second = build_random_model(tmp_path / "second", TINY_LLAMA)
    other = build_random_model(tmp_path / "other", dataclasses.replace(TINY_LLAMA, seed=7))
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in first.iterdir()) == names
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]
    assert (first / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_a_model_that_repeats_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights whose greedy text is one token for ever are no test model."""
    monkeypatch.setattr(random_model, "_weight", lambda name, shape, random, marker_ids: random.random(shape) * 0 + 1)
    with pytest.raises(ValueError, match="no draw of 16 gave 20 distinct ids"):
        build_random_model(tmp_path / "model", TINY_LLAMA)


def test_a_narrow_margin_or_few_ids_cannot_fail_a_test() -> None:
    """Both halves of the check are needed."""
    many = tuple(range(60))
    runs = [GreedyRun(many, 0.5), GreedyRun(many, 1e-4), GreedyRun((1, 2) * 30, 0.5)]
    assert [run.can_fail for run in runs] == [True, False, False]


def test_eos_ids_of_the_spec_reach_the_config(tmp_path: Path) -> None:
    """A test that wants an end token names it; the default is the chat marker."""
    named = build_random_model(tmp_path / "named", dataclasses.replace(TINY_LLAMA, eos_ids=(7, 9)))
    default = build_random_model(tmp_path / "default", TINY_LLAMA)
    read = [json.loads((folder / "config.json").read_text())["eos_token_id"] for folder in (named, default)]
    assert read == [[7, 9], [2]]


def test_the_tokenizer_of_another_folder_is_copied(tmp_path: Path) -> None:
    """tokenizer_from gives its files unchanged, and a vocabulary too small for them is refused."""
    source = build_random_model(tmp_path / "source", TINY_LLAMA)
    copy = build_random_model(tmp_path / "copy", dataclasses.replace(TINY_LLAMA, vocabulary_size=600), source)
    assert (copy / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    with pytest.raises(ValueError, match="vocabulary_size 300 is under the tokenizer's 512"):
        build_random_model(tmp_path / "small", dataclasses.replace(TINY_LLAMA, vocabulary_size=300), source)


def test_greedy_text_holds_no_marker(tmp_path: Path) -> None:
    """The markers' logits are zero, so greedy text runs to its length."""
    folder = build_random_model(tmp_path / "model", TINY_LLAMA)
    model, _ = load_model(folder)
    assert set(greedy_run(model, [40, 41, 42], 200).ids).isdisjoint({0, 1, 2})
