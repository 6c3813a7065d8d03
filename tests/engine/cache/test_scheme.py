"""What a user may ask of the KV cache's bits, and how a bad wish is answered: before any weight is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cache.scheme import KvScheme, LayerScheme, layer_count, read_scheme
from engine.errors import EngineError
from engine.settings import Settings


def _read(folder: Path, content: Any = None, layers: int | None = 4, **flags: Any) -> KvScheme | None:
    if content is not None:
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "kv_config.json").write_text(text, encoding="utf-8")
    config = {} if layers is None else {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_scheme(Settings(model="m", **flags), folder)


def _entry(layer: int, bits: int = 4, group_size: int = 64) -> dict[str, int]:
    return {"layer_idx": layer, "bits": bits, "group_size": group_size}


def test_nothing_asked_nothing_quantized(tmp_path: Path) -> None:
    """A kv_config.json in the folder counts only when it is asked for."""
    assert _read(tmp_path, [_entry(0)]) is None


def test_uniform_bits(tmp_path: Path) -> None:
    """All layers alike, with the group size and the start that were given, or their defaults."""
    assert _read(tmp_path, kv_bits=8) == KvScheme("--kv-bits", every=LayerScheme(8, 64))
    expected = KvScheme("--kv-bits", every=LayerScheme(4, 32), start_tokens=500)
    assert _read(tmp_path, kv_bits=4, kv_group_size=32, quantized_kv_start=500) == expected


def test_bits_per_layer(tmp_path: Path) -> None:
    """The file's layers, by the model's layer number; a group size that is left out is 64."""
    found = _read(tmp_path, [_entry(3, 8, 32), {"layer_idx": 1, "bits": 4}], kv_scheme="config")
    assert found == KvScheme("--kv-scheme", layers=((1, LayerScheme(4, 64)), (3, LayerScheme(8, 32))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no kv_config.json"),
        ("[{", "is not a list"),
        ({"layers": []}, "is not a list"),
        ([{"layer_idx": 0}], "bits"),
        ([{"layer_idx": -1, "bits": 4}], "layer_idx"),
        ([_entry(0) | {"mode": "affine"}], "mode"),
        ([], "names no layer"),
        ([_entry(0), _entry(4)], "layer 4 is missing: the model has layers 0 to 3"),
        ([_entry(2), _entry(2)], "layer 2 is named twice"),
        ([_entry(0), _entry(1, bits=3)], "layer 1: 3 bits are not supported; take 4 or 8"),
        ([_entry(1, group_size=48)], "layer 1: groups of 48 are not supported; take 32, 64, 128"),
    ],
)
def test_a_bad_file_is_refused_with_the_layer(tmp_path: Path, content: Any, words: str) -> None:
    """C6: what is wrong in kv_config.json, and where."""
    with pytest.raises(EngineError, match=words):
        _read(tmp_path, content, kv_scheme="config")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"kv_bits": 5}, "--kv-bits 5: 5 bits"),
        ({"kv_bits": 4, "kv_group_size": 16}, "groups of 16"),
        ({"kv_bits": 4, "kv_scheme": "config"}, "exclude each other"),
        ({"kv_group_size": 32}, "--kv-group-size needs --kv-bits"),
        ({"quantized_kv_start": 9}, "--quantized-kv-start needs --kv-bits"),
        ({"quantized_kv_start": 9, "kv_scheme": "config"}, "--quantized-kv-start needs --kv-bits"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(tmp_path: Path, flags: dict[str, Any], words: str) -> None:
    """No flag is silently without effect."""
    with pytest.raises(EngineError, match=words):
        _read(tmp_path, [_entry(0)], **flags)


def test_a_layer_beyond_an_unknown_count_is_left_to_the_model(tmp_path: Path) -> None:
    """A config without num_hidden_layers: the layer is looked up once the model is there."""
    assert _read(tmp_path, [_entry(40)], layers=None, kv_scheme="config") is not None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_hidden_layers": 7}, 7),
        ({"text_config": {"num_hidden_layers": 5}}, 5),
        ({"num_hidden_layers": "7"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_the_layer_count_is_the_configs(tmp_path: Path, config: Any, expected: int | None) -> None:
    """At the top or in the part that describes the language model; nothing is guessed."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert expected == layer_count(tmp_path)


def test_a_folder_without_a_readable_config_has_no_layer_count(tmp_path: Path) -> None:
    """Loading the model says what is wrong with it."""
    assert layer_count(tmp_path) is None
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert layer_count(tmp_path) is None
