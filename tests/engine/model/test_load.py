"""Finding, reading, casting and evaluating models; one clear line for what is broken."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import mlx.core as mx
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model as load_mlx_lm_model
from mlx_lm.utils import quantize_model

from bench.random_model import RandomModelSpec, build_random_model
from engine.errors import EngineError
from engine.model import load
from engine.model.load import LoadedModel, find_model, is_hugging_face_id, load_model
from engine.settings import DtypeName, Settings
from protocol.errors import ErrorCode

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that is never changed."""
    return build_random_model(tmp_path_factory.mktemp("models") / "whole", RandomModelSpec())


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy for a test to break."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


@pytest.fixture(scope="module")
def quantized(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in bfloat16 with 4-bit layers."""
    target = Path(shutil.copytree(whole, tmp_path_factory.mktemp("models") / "quantized"))
    model, config = load_mlx_lm_model(whole)
    model.set_dtype(mx.bfloat16)
    model, config = quantize_model(model, config, 32, 4)
    mx.save_safetensors(str(target / WEIGHTS), flat(model))
    (target / "config.json").write_text(json.dumps(config))
    return target


def flat(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def loaded(folder: Path, dtype: DtypeName = "auto", *, trust_remote_code: bool = False) -> LoadedModel:
    return load_model(Settings(model=str(folder), dtype=dtype, trust_remote_code=trust_remote_code), folder)


def refusal(act: Callable[[], object]) -> str:
    """The one line with which a bad model is refused."""
    with pytest.raises(EngineError) as caught:
        act()
    assert caught.value.code == ErrorCode.BAD_MODEL
    assert "\n" not in caught.value.message
    return caught.value.message


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- finding ----------------------------------------------------------------------------------


def test_a_folder_is_taken_as_it_is(folder: Path) -> None:
    """An existing folder needs no look-up."""
    assert find_model(str(folder)) == folder


def test_a_relative_folder_is_made_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status shows where the model lies, from wherever the engine was started."""
    monkeypatch.chdir(folder.parent)
    assert find_model(folder.name) == folder


@pytest.mark.parametrize("name", ["nowhere", "./a/b", "/a/b", "~/a", "a/b/c", "../b", "here/b", "a/", "/"])
def test_what_looks_like_a_path_is_never_looked_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped folder is an error at once, also `org/name` when `org` is a folder here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert is_hugging_face_id(name) is False
    if name != "/":
        assert "does not exist" in refusal(lambda: find_model(name))


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS takes no such names")
def test_a_folder_whose_name_is_no_text_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the name is not in the argument: every status and log line would have to show it."""
    strange = tmp_path / os.fsdecode(b"m\xff")
    strange.mkdir()
    monkeypatch.chdir(strange)
    for model in (".", str(strange)):
        assert "its name is not UTF-8 text" in refusal(lambda model=model: find_model(model))


def test_a_file_is_no_model(folder: Path) -> None:
    """The user is told what to give instead."""
    assert "is a file" in refusal(lambda: find_model(str(folder / WEIGHTS)))


def test_an_id_in_the_cache_needs_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is asked first, and its answer is enough."""
    asked: list[bool] = []

    def snapshot_download(_id: str, *, local_files_only: bool = False, allow_patterns: list[str]) -> str:
        asked.append(local_files_only)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert find_model("org/name") == folder
    assert asked == [True]


def test_an_id_that_cannot_be_fetched_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no such model, no right to it: the message names the id and the reason."""
    asked: list[bool] = []

    def snapshot_download(_id: str, *, local_files_only: bool = False, allow_patterns: list[str]) -> str:
        asked.append(local_files_only)
        raise LocalEntryNotFoundError("no\nconnection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    message = refusal(lambda: find_model("org/name"))
    assert "org/name" in message
    assert "no connection" in message
    assert asked == [True, False]


# --- what is broken ---------------------------------------------------------------------------


def test_no_config(folder: Path) -> None:
    """A folder without config.json is no model folder."""
    (folder / "config.json").unlink()
    assert "no config.json" in refusal(lambda: loaded(folder))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": "llama"}', '{"model_type": 7}'])
def test_a_broken_config(folder: Path, text: str) -> None:
    """Broken JSON, no object, missing and wrong values."""
    (folder / "config.json").write_text(text)
    assert str(folder) in refusal(lambda: loaded(folder))


def test_an_unknown_kind_of_model_is_named(folder: Path) -> None:
    """The line names the model_type."""
    change_config(folder, model_type="zork")
    assert "zork" in refusal(lambda: loaded(folder))


def test_no_weights(folder: Path) -> None:
    """A folder with a config alone."""
    (folder / WEIGHTS).unlink()
    assert "no weights" in refusal(lambda: loaded(folder))


@pytest.mark.parametrize("keep_bytes", [0, 4, 100, -1_000])
def test_truncated_weights(folder: Path, keep_bytes: int) -> None:
    """An incomplete download, at every place where it may have stopped."""
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:keep_bytes])
    assert str(folder) in refusal(lambda: loaded(folder))


def test_weights_that_are_something_else(folder: Path) -> None:
    """Zeros, or a web page saved under the file's name."""
    (folder / WEIGHTS).write_bytes(b"<html>404</html>" * 100)
    assert str(folder) in refusal(lambda: loaded(folder))


def test_missing_weights_are_named(folder: Path) -> None:
    """As when one of several files is missing."""
    weights = mx.load(str(folder / WEIGHTS))
    assert isinstance(weights, dict)
    del weights["model.norm.weight"]
    mx.save_safetensors(str(folder / WEIGHTS), weights)
    assert "model.norm.weight" in refusal(lambda: loaded(folder))


def test_weights_of_another_shape_are_named(folder: Path) -> None:
    """A config that belongs to another size of the model."""
    change_config(folder, hidden_size=128)
    assert "embed_tokens" in refusal(lambda: loaded(folder))


def test_code_in_the_model_is_not_run_unasked(folder: Path) -> None:
    """A model_file is Python: without the option it is refused, with it it is run."""
    (folder / "own.py").write_text("from mlx_lm.models.llama import Model, ModelArgs\n")
    change_config(folder, model_file="own.py")
    assert "own.py" in refusal(lambda: loaded(folder))
    assert loaded(folder, trust_remote_code=True).dtype == "float32"


# --- weights ----------------------------------------------------------------------------------


def test_a_whole_model_is_loaded_and_evaluated(whole: Path) -> None:
    """Its weights are in memory, counted once."""
    model = loaded(whole)
    expected, _ = load_mlx_lm_model(whole)
    assert model.weights_bytes == (whole / WEIGHTS).stat().st_size - header_bytes(whole / WEIGHTS)
    assert model.config["model_type"] == "llama"
    assert (model.path, model.dtype) == (whole, "float32")
    assert all(mx.array_equal(weight, flat(expected)[name]).item() for name, weight in flat(model.model).items())


def header_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


@pytest.mark.skipif(load.device_name() != "cpu", reason="only the CPU cannot do without")
def test_auto_on_cpu_gives_float32_and_no_quantized_layer(quantized: Path) -> None:
    """Dequantized values are the quantized layers' own, in float32."""
    model = loaded(quantized)
    expected, _ = load_mlx_lm_model(quantized)
    layer = expected.layers[0].self_attn.q_proj
    values = mx.dequantize(layer.weight, layer.scales, layer.biases, 32, 4)
    assert {weight.dtype for weight in flat(model.model).values()} == {mx.float32}
    assert model.dtype == "float32"
    assert not [name for name in flat(model.model) if name.endswith("scales")]
    assert mx.array_equal(model.model.layers[0].self_attn.q_proj.weight, values.astype(mx.float32)).item()


def test_auto_off_cpu_keeps_the_models_own(quantized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal and CUDA stream quantized weights."""
    monkeypatch.setattr(load, "device_name", lambda: "metal")
    model = loaded(quantized)
    assert model.dtype == "bfloat16"
    assert isinstance(model.model.layers[0].self_attn.q_proj, nn.QuantizedLinear)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_chosen_dtype_casts_and_keeps_quantized_layers(quantized: Path, dtype: DtypeName) -> None:
    """The user's word is taken as it is."""
    model = loaded(quantized, dtype)
    assert model.dtype == dtype
    assert isinstance(model.model.layers[0].self_attn.q_proj, nn.QuantizedLinear)


def test_weights_kept_in_float32_on_purpose_are_not_narrowed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's cast_predicate is obeyed."""
    keep_norms = property(lambda _self: lambda name: "norm" not in name)
    monkeypatch.setattr("mlx_lm.models.llama.Model.cast_predicate", keep_norms, raising=False)
    weights = flat(loaded(whole, "float16").model)
    assert {weight.dtype for name, weight in weights.items() if "norm" in name} == {mx.float32}
    assert {weight.dtype for name, weight in weights.items() if "norm" not in name} == {mx.float16}


def test_layers_with_global_scales_stay_quantized_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """mlx-lm's dequantizing leaves the scale out: slow and right, not fast and wrong."""
    model = nn.Sequential(nn.QuantizedLinear(64, 64, False, 32, 4))
    model.layers[0].global_scale = mx.array(2.0)
    with caplog.at_level(logging.WARNING):
        load._dequantize(model)
    assert isinstance(model.layers[0], nn.QuantizedLinear)
    assert [record.message for record in caplog.records] == ["model.stays_quantized"]


def test_peak_memory_is_about_one_copy(quantized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are evaluated in small groups, so dequantizing never holds all of both forms."""
    monkeypatch.setattr(load, "EVAL_BYTES", 16_384)
    evaluated_bytes: list[int] = []
    evaluate = mx.eval
    monkeypatch.setattr(
        mx, "eval", lambda group: (evaluated_bytes.append(sum(weight.nbytes for weight in group)), evaluate(group))
    )
    model = loaded(quantized)
    assert sum(evaluated_bytes) == model.weights_bytes
    assert max(evaluated_bytes) <= 16_384 + max(weight.nbytes for weight in flat(model.model).values())
    assert len(evaluated_bytes) > 5


def test_a_check_sees_the_model_before_any_weight_is_read(folder: Path) -> None:
    """What it refuses has cost no memory, and is refused in its own words."""
    size_bytes = sum(weight.nbytes for weight in flat(loaded(folder).model).values())
    before_bytes = mx.get_active_memory()

    def refuse(model: nn.Module) -> None:
        raise EngineError(ErrorCode.BAD_SETTING, f"{mx.get_active_memory() - before_bytes < size_bytes / 10}")

    with pytest.raises(EngineError, match="True") as refused:
        load_model(Settings(model=str(folder)), folder, refuse)
    assert refused.value.code == ErrorCode.BAD_SETTING
