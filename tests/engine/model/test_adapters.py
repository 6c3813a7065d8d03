"""Adapters: put on as mlx-lm loads them, taken off without a trace, and refused in words."""

import json
from pathlib import Path

import pytest

from tests.fakes.models import fresh_model, tiny_model  # isort: skip  # before MLX

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import load_adapters

from engine.errors import EngineError
from engine.model.adapters import CONFIG_NAME, WEIGHTS_NAME, Adapters, read_adapter
from protocol.errors import ErrorCode
from tests.fakes.adapters import build_adapter

TOKENS = mx.array([[5, 9, 40, 3, 77]])


def logits(model: object) -> list[float]:
    return model(TOKENS)[0, -1].tolist()  # type: ignore[operator]


@pytest.mark.parametrize("is_dora", [False, True])
def test_a_forward_is_mlx_lms_with_that_adapter(tmp_path: Path, is_dora: bool) -> None:
    """On, off, and another one on, in any order, without dropout."""
    model, base = fresh_model("llama"), logits(tiny_model("llama"))
    folders = [build_adapter(tmp_path / name, "llama", seed, is_dora=is_dora) for seed, name in enumerate("ab")]
    expected = []
    for folder in folders:
        loaded = load_adapters(fresh_model("llama"), str(folder))
        loaded.eval()
        expected.append(logits(loaded))
    adapters = Adapters(model)
    a, b = (adapters.mount(folder.name, folder) for folder in folders)
    assert logits(adapters.model_for(None)) == base
    assert logits(adapters.model_for(a)) == expected[0]
    assert logits(adapters.model_for(b)) == expected[1]
    assert logits(adapters.model_for(a)) == expected[0]
    assert logits(adapters.model_for(None)) == base
    assert expected[0] != expected[1] != base


def test_the_models_own_weights_are_shared(tmp_path: Path) -> None:
    """An adapter takes the bytes of its own matrices only."""
    model = fresh_model("llama")
    folder = build_adapter(tmp_path / "a", "llama", 1)
    own = mx.load(str(folder / WEIGHTS_NAME))
    assert isinstance(own, dict)
    adapter = Adapters(model).mount("a", folder)
    assert adapter.size_bytes == sum(weight.nbytes for weight in own.values())


def test_a_default_is_on_for_rows_that_name_none(tmp_path: Path) -> None:
    """--adapter-path: the adapter of every request that names no other."""
    model = fresh_model("llama")
    default = read_adapter(model, "", build_adapter(tmp_path / "a", "llama", 1))
    adapters = Adapters(model, default)
    assert adapters.find(None) is default
    assert logits(adapters.model_for(adapters.find(None))) != logits(tiny_model("llama"))


def test_an_unmounted_name_is_refused_while_its_rows_go_on(tmp_path: Path) -> None:
    """The adapter itself stays usable for who has it."""
    adapters = Adapters(fresh_model("llama"))
    adapter = adapters.mount("a", build_adapter(tmp_path / "a", "llama", 1))
    before = logits(adapters.model_for(adapter))
    adapters.unmount("a")
    with pytest.raises(EngineError, match="adapter a is not mounted; mounted: none") as refused:
        adapters.find("a")
    assert refused.value.code == ErrorCode.MODEL_NOT_FOUND
    assert logits(adapters.model_for(adapter)) == before


def test_a_bad_folder_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    """Each with what is wrong; the model is the bare one afterwards."""
    model = fresh_model("llama")
    base = dict(tree_flatten(model.parameters())).keys()
    good = build_adapter(tmp_path / "good", "llama", 1)
    other = build_adapter(tmp_path / "other", "llama", 1, lora_parameters={"rank": 8, "scale": 8.0, "dropout": 0.0})
    full = build_adapter(tmp_path / "full", "llama", 1, fine_tune_type="full")
    scaleless = build_adapter(tmp_path / "scaleless", "llama", 1, lora_parameters={"rank": 4, "dropout": 0.0})
    no_weights = tmp_path / "no_weights"
    no_weights.mkdir()
    (no_weights / CONFIG_NAME).write_text("{}")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / CONFIG_NAME).write_text("{")
    (broken / WEIGHTS_NAME).write_bytes(b"")
    listed = tmp_path / "listed"
    listed.mkdir()
    (listed / CONFIG_NAME).write_text(json.dumps([]))
    (listed / WEIGHTS_NAME).write_bytes((good / WEIGHTS_NAME).read_bytes()[:40])
    cut = build_adapter(tmp_path / "cut", "llama", 1)
    (cut / WEIGHTS_NAME).write_bytes((good / WEIGHTS_NAME).read_bytes()[:-400])
    cases = {
        tmp_path / "missing": "there is no such folder",
        no_weights: f"{WEIGHTS_NAME} is missing",
        broken: f"{CONFIG_NAME} is not JSON",
        listed: f"{CONFIG_NAME} is not an object",
        full: "fine_tune_type full",
        scaleless: "scale",
        other: "incompatible tensors",
        cut: "cannot be used",
    }
    for folder, why in cases.items():
        with pytest.raises(EngineError, match=why) as refused:
            read_adapter(model, "x", folder)
        assert str(folder) in refused.value.message
        assert dict(tree_flatten(model.parameters())).keys() == base
