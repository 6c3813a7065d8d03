"""A model folder whose greedy text is written beforehand: which text, the prompt's length alone decides.

GPT-2 has learned positions, and a layer of zeros leaves its sums as they are. Each token of the scripts has a
dimension of its own: a position behind which it is to follow sets it, the token reads it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

EOS_TOKEN: Final = "<|end|>"
# Far above what tokens add to each other.
_LOUD: Final = 10_000.0
_HEADS: Final = 4


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """prompt_tokens: for each script the length of the prompt that calls it up."""

    folder: Path
    tokenizer: Tokenizer
    prompt_tokens: tuple[int, ...]


def build_scripted_model(
    folder: Path,
    texts: Sequence[str],
    *,
    template: str,
    least_prompt: int,
    special: Sequence[str] = (),
    vocabulary_size: int = 900,
) -> ScriptedModel:
    """Writes the folder. special: markers that are special tokens. least_prompt: no prompt is shorter.

    The template may read `prompt_tokens`. vocabulary_size: with 256 every byte is a token, so that what a grammar
    forces is cut into the same tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(texts, special, vocabulary_size)
    tokenizer.save(str(folder / "tokenizer.json"))
    eos_id = tokenizer.token_to_id(EOS_TOKEN)
    scripts = [[*tokenizer.encode(text, add_special_tokens=False).ids, eos_id] for text in texts]
    starts: list[int] = []
    at = least_prompt
    for script in scripts:
        starts.append(at)
        at += len(script)
    known = f"{{%- set prompt_tokens = {json.dumps(starts)} -%}}"
    config = {"eos_token": EOS_TOKEN, "bos_token": None, "chat_template": known + template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    _write_weights(folder, scripts, starts, tokenizer.get_vocab_size(), eos_id)
    return ScriptedModel(folder, tokenizer, tuple(starts))


def _tokenizer(texts: Sequence[str], special: Sequence[str], vocabulary_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[AddedToken(token, special=True) for token in (EOS_TOKEN, *special)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _write_weights(
    folder: Path, scripts: Sequence[Sequence[int]], starts: Sequence[int], vocabulary_size: int, eos_id: int
) -> None:
    placed = zip(starts, scripts, strict=True)
    # The token before a script's first one says it.
    steps = [(start - 1 + index, id_) for start, script in placed for index, id_ in enumerate(script)]
    dimensions = {id_: dimension for dimension, id_ in enumerate(sorted({id_ for _, id_ in steps}))}
    width = -(-len(dimensions) // _HEADS) * _HEADS
    positions = steps[-1][0] + 64
    tokens = np.zeros((vocabulary_size, width), np.float32)
    places = np.zeros((positions, width), np.float32)
    for id_, dimension in dimensions.items():
        tokens[id_, dimension] = 1.0
    for position, id_ in steps:
        places[position, dimensions[id_]] = _LOUD
    shapes = {"attn.c_attn": (3 * width, width), "attn.c_proj": (width, width)}
    shapes |= {"mlp.c_fc": (4 * width, width), "mlp.c_proj": (width, 4 * width)}
    weights = {"wte.weight": tokens, "wpe.weight": places, "ln_f.weight": np.ones(width, np.float32)}
    weights["ln_f.bias"] = np.zeros(width, np.float32)
    for name, (rows, columns) in shapes.items():
        # Stored as GPT-2's are, turned round.
        weights[f"h.0.{name}.weight"] = np.zeros((columns, rows), np.float32)
        weights[f"h.0.{name}.bias"] = np.zeros(rows, np.float32)
    for name in ("ln_1", "ln_2"):
        weights[f"h.0.{name}.weight"] = np.ones(width, np.float32)
        weights[f"h.0.{name}.bias"] = np.zeros(width, np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "gpt2",
        "n_ctx": positions,
        "n_embd": width,
        "n_head": _HEADS,
        "n_layer": 1,
        "n_positions": positions,
        "max_position_embeddings": positions,
        "layer_norm_epsilon": 1e-5,
        "vocab_size": vocabulary_size,
        "eos_token_id": eos_id,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
