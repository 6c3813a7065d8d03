"""What the converter has to know of one family of models: configuration, names and forms of the weights."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from gguf import GGUFReader, quants

from engine.ctl.failure import CommandError
from engine.ctl.gguf_metadata import Metadata


class StoredWeight(NamedTuple):
    """A weight as it is written. dtype: as safetensors calls it; values: of that width, whatever numpy calls it."""

    dtype: str
    values: np.ndarray


class GgufFamily(Protocol):
    """One value of `general.architecture`."""

    architecture: str

    def config(self, metadata: Metadata, *, has_head: bool) -> dict[str, Any]:
        """config.json. has_head: an output matrix of its own. Raises CommandError on what is not converted."""
        ...

    def names(self, layers: int) -> dict[str, str]:
        """GGUF tensor name to Hugging Face name, both with `.weight`."""
        ...

    def stored(self, name: str, weight: np.ndarray, config: dict[str, Any]) -> StoredWeight:
        """A dequantized float32 weight in the form and dtype that the model folder keeps."""
        ...


def common_config(metadata: Metadata, architecture: str, *, has_head: bool) -> dict[str, Any]:
    """The fields of config.json that all families share."""
    scaling = metadata.get(f"{architecture}.rope.scaling.type", str, default="none")
    if scaling != "none":
        raise CommandError(f"GGUF rope scaling {scaling!r} is not converted")
    heads = metadata.get(f"{architecture}.attention.head_count", int)
    hidden = metadata.get(f"{architecture}.embedding_length", int)
    return {
        "hidden_size": hidden,
        "num_hidden_layers": metadata.get(f"{architecture}.block_count", int),
        "intermediate_size": metadata.get(f"{architecture}.feed_forward_length", int),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get(f"{architecture}.attention.head_count_kv", int, default=heads),
        "head_dim": metadata.get(f"{architecture}.attention.key_length", int, default=hidden // heads),
        # GGUF keeps a float32; 1e-05 is meant, not 9.999999747378752e-06.
        "rms_norm_eps": _shortest(metadata.get(f"{architecture}.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": metadata.get(f"{architecture}.rope.freq_base", float, default=10_000.0),
        "max_position_embeddings": metadata.get(f"{architecture}.context_length", int),
        "vocab_size": len(metadata.get_list("tokenizer.ggml.tokens", str)),
        "tie_word_embeddings": not has_head,
        "bos_token_id": metadata.find("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id", int),
        "pad_token_id": metadata.find("tokenizer.ggml.padding_token_id", int),
    }


def dequantized(tensor: Any) -> np.ndarray:
    """A GGUF tensor as float32, whatever it is packed as."""
    return np.asarray(quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def has_head(reader: GGUFReader) -> bool:
    """Whether the file has an output matrix beside its embedding."""
    return any(tensor.name == "output.weight" for tensor in reader.tensors)


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32."""
    return float(str(np.float32(value)))
