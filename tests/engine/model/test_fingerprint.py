"""The name of what computes a model's replies."""

import re
from pathlib import Path
from typing import Any

import pytest
from mlx import nn

from engine.model import fingerprint as module
from engine.model.fingerprint import fingerprint
from engine.model.load import LoadedModel
from engine.settings import Settings


def of(folder: Path, dtype: str = "float32", device: str = "cpu", **options: Any) -> str:
    loaded = LoadedModel(model=nn.Module(), config={}, path=folder, dtype=dtype, device=device, weights_bytes=1)
    return fingerprint(loaded, Settings(model=str(folder), **options))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's files, as far as they are looked at."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    return tmp_path


def test_it_looks_as_openais_and_stays(folder: Path) -> None:
    """The same after every start, whoever else is served."""
    name = of(folder)
    assert re.fullmatch(r"fp_[0-9a-f]{12}", name)
    assert of(folder, max_rows=1, served_model_name=("x",), restarts=3) == name


def test_it_changes_with_what_computes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arithmetic, device, cache, adapter, weights, config, and every version."""
    found = {of(folder)}
    for changes in ({"dtype": "float16"}, {"device": "metal"}, {"kv_bits": 4}, {"kv_bits": 8}, {"adapter_path": "a"}):
        found.add(of(folder, **changes))
    (folder / "config.json").write_text('{"a": 1}')
    found.add(of(folder))
    (folder / "model.safetensors").write_bytes(b"12345")
    found.add(of(folder))
    monkeypatch.setattr(module, "version", lambda name: f"{name} 9")
    found.add(of(folder))
    assert len(found) == 9
