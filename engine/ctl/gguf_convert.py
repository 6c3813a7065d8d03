"""One GGUF file to one mlx-lm model folder: float16 weights, configuration, tokenizer.

Llama-family files only; what it cannot carry over exactly is refused by name. Downloads nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from gguf import MODEL_ARCH, GGUFReader, get_tensor_name_map, quants
from safetensors.numpy import save_file

from engine.ctl.failure import CommandError
from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_tokenizer import write_tokenizer

MODEL_FILES: Final = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)

_OUTER_NAMES: Final = ("model.embed_tokens", "model.norm", "lm_head")
_LAYER_NAMES: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def convert_gguf(source: Path, folder: Path, on_tensor: Callable[[int, int], None]) -> None:
    """Writes MODEL_FILES into the existing `folder`. on_tensor(done, total) is called after each tensor.

    Raises CommandError on a file that is damaged or of a family that is not converted.
    """
    try:
        reader = GGUFReader(source)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise CommandError(f"{source.name} is not a readable GGUF file: {error}") from error
    metadata = Metadata(reader)
    config = llama_config(metadata, has_head=any(tensor.name == "output.weight" for tensor in reader.tensors))
    weights = _weights(reader, config, on_tensor)
    rows = weights["model.embed_tokens.weight"].shape[0]
    if rows != config["vocab_size"]:
        raise CommandError(f"{source.name} says vocabulary {config['vocab_size']}, but embeds {rows} tokens")
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation_config(config))
    write_tokenizer(metadata, folder)


def llama_config(metadata: Metadata, *, has_head: bool) -> dict[str, Any]:
    """The config.json of a llama-family file. has_head: an output matrix of its own."""
    architecture = metadata.get("general.architecture", str)
    if architecture != "llama":
        raise CommandError(f"GGUF architecture {architecture!r} is not converted, only 'llama'")
    scaling = metadata.get("llama.rope.scaling.type", str, default="none")
    if scaling != "none":
        raise CommandError(f"GGUF rope scaling {scaling!r} is not converted")
    heads = metadata.get("llama.attention.head_count", int)
    hidden = metadata.get("llama.embedding_length", int)
    head_dim = metadata.get("llama.attention.key_length", int, default=hidden // heads)
    rotated = metadata.get("llama.rope.dimension_count", int, default=head_dim)
    if rotated != head_dim:
        raise CommandError(
            f"GGUF file rotates {rotated} of {head_dim} head dimensions; partial rotation is not converted"
        )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": metadata.get("llama.block_count", int),
        "intermediate_size": metadata.get("llama.feed_forward_length", int),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("llama.attention.head_count_kv", int, default=heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        # GGUF keeps a float32; 1e-05 is meant, not 9.999999747378752e-06.
        "rms_norm_eps": _shortest(metadata.get("llama.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": metadata.get("llama.rope.freq_base", float, default=10_000.0),
        "rope_traditional": False,
        "max_position_embeddings": metadata.get("llama.context_length", int),
        "vocab_size": len(metadata.get_list("tokenizer.ggml.tokens", str)),
        "tie_word_embeddings": not has_head,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": metadata.find("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id", int),
        "pad_token_id": metadata.find("tokenizer.ggml.padding_token_id", int),
        "torch_dtype": "float16",
    }


def hugging_face_names(layers: int) -> dict[str, str]:
    """GGUF tensor name to Hugging Face name of a llama model, both with `.weight`."""
    name_map = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    inner = [f"model.layers.{layer}.{name}" for layer in range(layers) for name in _LAYER_NAMES]
    names: dict[str, str] = {}
    for name in (*_OUTER_NAMES, *inner):
        gguf_name = name_map.get_name(name)
        assert gguf_name is not None, name
        names[f"{gguf_name}.weight"] = f"{name}.weight"
    return names


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undoes GGUF's row order of llama's q and k. weight: [heads * head_dim, hidden]; same shape out."""
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _weights(
    reader: GGUFReader, config: dict[str, Any], on_tensor: Callable[[int, int], None]
) -> dict[str, np.ndarray]:
    names = hugging_face_names(config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    weights: dict[str, np.ndarray] = {}
    for done, tensor in enumerate(reader.tensors, start=1):
        name = names.get(tensor.name)
        if name is None:
            raise CommandError(f"GGUF tensor {tensor.name!r} has no place in a llama model")
        weight = quants.dequantize(tensor.data, tensor.tensor_type)
        projection = name.split(".")[-2]
        if projection in heads:
            weight = unpermute(weight, heads[projection])
        weights[name] = np.ascontiguousarray(weight, dtype=np.float16)
        on_tensor(done, len(reader.tensors))
    missing = sorted(set(names.values()) - set(weights) - {"lm_head.weight"})
    if missing:
        raise CommandError(f"the GGUF file lacks {missing[0]} and {len(missing) - 1} other tensors")
    return weights


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if config[name] is not None}


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32."""
    return float(str(np.float32(value)))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
