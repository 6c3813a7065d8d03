"""Adapter folders with random weights, written as mlx-lm's training writes them."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

from engine.model.adapters import CONFIG_NAME, WEIGHTS_NAME
from tests.fakes.models import fresh_model

PARAMETERS = {"rank": 4, "scale": 8.0, "dropout": 0.3}


def build_adapter(folder: Path, architecture: str, seed: int, *, is_dora: bool = False, **config: Any) -> Path:
    """A folder for a tiny model; its deltas are large enough to change what is said. config: over the file's own."""
    model = fresh_model(architecture)
    linear_to_lora_layers(model, 2, PARAMETERS, use_dora=is_dora)
    key = mx.random.key(seed)
    weights = {}
    for name, weight in tree_flatten(model.parameters()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("lora_a", "lora_b", "m"):
            key, own = mx.random.split(key)
            noise = mx.random.normal(weight.shape, key=own) * 0.1
            weights[name] = weight + noise if leaf == "m" else noise
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / WEIGHTS_NAME), weights)
    written = {"fine_tune_type": "dora" if is_dora else "lora", "num_layers": 2, "lora_parameters": PARAMETERS}
    (folder / CONFIG_NAME).write_text(json.dumps({**written, **config}))
    return folder
