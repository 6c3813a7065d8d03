"""How many layers a model folder says it has, before the model exists."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.model.kv_layers import layer_count


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
def test_the_count_is_the_configs(tmp_path: Path, config: Any, expected: int | None) -> None:
    """At the top or in the part that describes the language model; nothing is guessed."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert expected == layer_count(tmp_path)


def test_a_folder_without_a_readable_config_has_none(tmp_path: Path) -> None:
    """Loading the model says what is wrong with it."""
    assert layer_count(tmp_path) is None
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert layer_count(tmp_path) is None
