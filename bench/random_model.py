"""Builds small model folders with random weights whose greedy text varies, for tests and the bench.

Owns their shapes, weights and the check that a test on them can fail; not the tokenizer's making.
"""

import argparse
import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import engine.openblas  # noqa: F401  # before MLX

# isort: split
import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import llama, qwen2, qwen3
from mlx_lm.models.cache import make_prompt_cache
from tokenizers import Tokenizer

from bench.tiny_tokenizer import write_tiny_tokenizer

CHECKED_TOKENS: Final = 60
LEAST_DISTINCT_IDS: Final = 20
LEAST_MARGIN: Final = 1e-3
CHECKED_PROMPT: Final = "Tell me a story about the sea and the wind."
_DRAWS: Final = 16
# Sharp attention keeps the text from falling into a loop, and a wide head keeps its margins wide.
_ATTENTION_GAIN: Final = 2.0
_HEAD_GAIN: Final = 3.0

Architecture = Literal["llama", "qwen2", "qwen3"]


@dataclass(frozen=True, slots=True)
class RandomModelSpec:
    """Shape of a model. eos_ids None: the tokenizer's markers, which these models never choose greedily."""

    architecture: Architecture = "llama"
    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    intermediate_size: int = 128
    vocabulary_size: int = 512
    context_tokens: int = 32_768
    seed: int = 0
    eos_ids: tuple[int, ...] | None = None


TINY_LLAMA: Final = RandomModelSpec()
TINY_QWEN2: Final = RandomModelSpec(architecture="qwen2")
TINY_QWEN3: Final = RandomModelSpec(architecture="qwen3")
# Narrow under SmolLM2's vocabulary: a step is short, so what the host adds to it shows.
FOUR_LAYERS: Final = RandomModelSpec(hidden_size=128, layers=4, intermediate_size=384, vocabulary_size=49_152)
PRESETS: Final = {
    "tiny-llama": TINY_LLAMA,
    "tiny-qwen2": TINY_QWEN2,
    "tiny-qwen3": TINY_QWEN3,
    "four-layers": FOUR_LAYERS,
}


@dataclass(frozen=True, slots=True)
class GreedyRun:
    """Greedy text of a plain loop. ids: one per step; least_margin: smallest top-1 logit lead of all steps."""

    ids: tuple[int, ...]
    least_margin: float

    @property
    def can_fail(self) -> bool:
        """True when a wrong computation would show in these ids, and rounding would not."""
        return len(set(self.ids)) >= LEAST_DISTINCT_IDS and self.least_margin > LEAST_MARGIN


def build_random_model(folder: Path, spec: RandomModelSpec, tokenizer_from: Path | None = None) -> Path:
    """Makes `folder` a loadable model: float32 weights, the same for the same spec. Returns it.

    tokenizer_from: a model folder whose tokenizer files are copied; None makes a tiny tokenizer.
    Raises ValueError when no draw of weights gives greedy text on which a test can fail.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer_from is None:
        write_tiny_tokenizer(folder, spec.vocabulary_size)
    else:
        _copy_tokenizer(tokenizer_from, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if tokenizer.get_vocab_size() > spec.vocabulary_size:
        raise ValueError(
            f"vocabulary_size {spec.vocabulary_size} is under the tokenizer's {tokenizer.get_vocab_size()}"
        )
    marker_ids = tuple(sorted(id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special))
    prompt_ids = tokenizer.encode(CHECKED_PROMPT, add_special_tokens=False).ids
    model = _drawn_model(spec, marker_ids, prompt_ids)
    weights = dict(_parameters(model))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    config = dataclasses.asdict(_model_args(spec)) | {
        "dtype": "float32",
        "torch_dtype": "float32",
        "eos_token_id": list(_eos_ids(spec, tokenizer, folder)),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    return folder


def greedy_run(model: nn.Module, prompt_ids: list[int], tokens: int = CHECKED_TOKENS) -> GreedyRun:
    """The greedy text of `tokens` steps by a plain loop on mlx-lm's own caches."""
    caches = make_prompt_cache(model)
    logits = model(mx.array([prompt_ids]), cache=caches)[0, -1]
    ids: list[int] = []
    least_margin = float("inf")
    for _ in range(tokens):
        row = np.array(logits.astype(mx.float32))
        best = int(row.argmax())
        top = np.partition(row, -2)[-2:]
        least_margin = min(least_margin, float(top[1] - top[0]))
        ids.append(best)
        logits = model(mx.array([[best]]), cache=caches)[0, -1]
    return GreedyRun(tuple(ids), least_margin)


def _drawn_model(spec: RandomModelSpec, marker_ids: tuple[int, ...], prompt_ids: list[int]) -> nn.Module:
    """The first of a fixed sequence of draws that passes the check."""
    model = _empty_model(spec)
    seen: list[str] = []
    for draw in range(_DRAWS):
        random = np.random.default_rng([spec.seed, draw])
        weights = [(name, mx.array(_weight(name, old.shape, random, marker_ids))) for name, old in _parameters(model)]
        model.load_weights(weights)
        mx.eval(model.parameters())
        run = greedy_run(model, prompt_ids)
        if run.can_fail:
            return model
        seen.append(f"{len(set(run.ids))} ids, margin {run.least_margin:.1e}")
    raise ValueError(
        f"{spec}: no draw of {_DRAWS} gave {LEAST_DISTINCT_IDS} distinct ids in {CHECKED_TOKENS} greedy tokens"
        f" with margins over {LEAST_MARGIN}; got {'; '.join(seen)}"
    )


def _parameters(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return flat


def _weight(name: str, shape: tuple[int, ...], random: np.random.Generator, marker_ids: tuple[int, ...]) -> np.ndarray:
    values = random.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm.weight"):
        return 1.0 + 0.1 * values
    if name.endswith("bias"):
        return 0.1 * values
    if "embed_tokens" in name:
        return values
    values /= np.sqrt(shape[-1])
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        return _ATTENTION_GAIN * values
    if name.startswith("lm_head"):
        values[list(marker_ids)] = 0.0
        return _HEAD_GAIN * values
    return values


def _model_args(spec: RandomModelSpec) -> Any:
    shape = {
        "model_type": spec.architecture,
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.layers,
        "intermediate_size": spec.intermediate_size,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": 1e-5,
        "vocab_size": spec.vocabulary_size,
        "max_position_embeddings": spec.context_tokens,
        "rope_theta": 100_000.0,
        "tie_word_embeddings": False,
    }
    match spec.architecture:
        case "llama":
            return llama.ModelArgs(**shape)
        case "qwen2":
            return qwen2.ModelArgs(**shape)
        case "qwen3":
            return qwen3.ModelArgs(**shape, head_dim=spec.hidden_size // spec.heads)


def _empty_model(spec: RandomModelSpec) -> nn.Module:
    modules = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3}
    return modules[spec.architecture].Model(_model_args(spec))


def _copy_tokenizer(source: Path, folder: Path) -> None:
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _eos_ids(spec: RandomModelSpec, tokenizer: Tokenizer, folder: Path) -> tuple[int, ...]:
    if spec.eos_ids is not None:
        return spec.eos_ids
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    named = settings.get("eos_token")
    text = named["content"] if isinstance(named, dict) else named
    found = tokenizer.token_to_id(text) if text else None
    if found is None:
        raise ValueError(f"{folder / 'tokenizer_config.json'}: its eos_token {text!r} is not in tokenizer.json")
    return (found,)


def main() -> None:
    """Builds one preset from the command line and prints its folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.random_model", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="four-layers")
    parser.add_argument("--tokenizer-from", type=Path, help="a model folder; without it a tiny tokenizer is made")
    options = parser.parse_args()
    print(build_random_model(options.folder, PRESETS[options.preset], options.tokenizer_from))


if __name__ == "__main__":
    main()
