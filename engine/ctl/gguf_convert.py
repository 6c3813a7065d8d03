"""One GGUF file to one mlx-lm model folder: weights, configuration, tokenizer.

Knows the order of the work and the families by name; what a family cannot carry over exactly is refused. Downloads
nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from gguf import GGUFReader
from safetensors import TensorSpec, serialize_file

from engine.ctl.failure import CommandError
from engine.ctl.gguf_family import GgufFamily, StoredWeight, dequantized, has_head
from engine.ctl.gguf_gemma3 import Gemma3
from engine.ctl.gguf_llama import Llama
from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_tokenizer import write_tokenizer

MODEL_FILES: Final = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
FAMILIES: Final[tuple[GgufFamily, ...]] = (Llama(), Gemma3())


def convert_gguf(source: Path, folder: Path, on_tensor: Callable[[int, int], None]) -> None:
    """Writes MODEL_FILES into the existing `folder`. on_tensor(done, total) is called after each tensor.

    Raises CommandError on a file that is damaged or of a family that is not converted.
    """
    try:
        reader = GGUFReader(source)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise CommandError(f"{source.name} is not a readable GGUF file: {error}") from error
    metadata = Metadata(reader)
    family = _family(metadata.get("general.architecture", str))
    config = family.config(metadata, has_head=has_head(reader))
    weights = _weights(reader, family, config, on_tensor)
    rows = weights["model.embed_tokens.weight"].values.shape[0]
    if rows != config["vocab_size"]:
        raise CommandError(f"{source.name} says vocabulary {config['vocab_size']}, but embeds {rows} tokens")
    _save(weights, folder / "model.safetensors")
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation_config(config))
    write_tokenizer(metadata, folder)


def _family(architecture: str) -> GgufFamily:
    for family in FAMILIES:
        if family.architecture == architecture:
            return family
    known = " and ".join(repr(family.architecture) for family in FAMILIES)
    raise CommandError(f"GGUF architecture {architecture!r} is not converted, only {known}")


def _weights(
    reader: GGUFReader, family: GgufFamily, config: dict[str, Any], on_tensor: Callable[[int, int], None]
) -> dict[str, StoredWeight]:
    names = family.names(config["num_hidden_layers"])
    weights: dict[str, StoredWeight] = {}
    for done, tensor in enumerate(reader.tensors, start=1):
        name = names.get(tensor.name)
        if name is None:
            raise CommandError(f"GGUF tensor {tensor.name!r} has no place in a {family.architecture} model")
        weights[name] = family.stored(name, dequantized(tensor), config)
        on_tensor(done, len(reader.tensors))
    missing = sorted(set(names.values()) - set(weights) - {"lm_head.weight"})
    if missing:
        raise CommandError(f"the GGUF file lacks {missing[0]} and {len(missing) - 1} other tensors")
    return weights


def _save(weights: dict[str, StoredWeight], path: Path) -> None:
    """By the library's lower half: numpy has no name for bfloat16. The arrays outlive the call."""
    specs = {
        name: TensorSpec(dtype=dtype, shape=values.shape, data_ptr=values.ctypes.data, data_len=values.nbytes)
        for name, (dtype, values) in weights.items()
    }
    serialize_file(specs, str(path), {"format": "mlx"})


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if config[name] is not None}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
