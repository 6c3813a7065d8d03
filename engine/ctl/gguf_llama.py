"""Llama's family: SmolLM2 and its like."""

from typing import Any, Final

import numpy as np
from gguf import MODEL_ARCH, get_tensor_name_map

from engine.ctl.failure import CommandError
from engine.ctl.gguf_family import StoredWeight, common_config
from engine.ctl.gguf_metadata import Metadata

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


class Llama:
    """Kept in float16. GGUF permutes the rows of q and k."""

    architecture = "llama"

    def config(self, metadata: Metadata, *, has_head: bool) -> dict[str, Any]:
        """For mlx-lm's `llama`."""
        common = common_config(metadata, self.architecture, has_head=has_head)
        head_dim = common["head_dim"]
        rotated = metadata.get("llama.rope.dimension_count", int, default=head_dim)
        if rotated != head_dim:
            raise CommandError(
                f"GGUF file rotates {rotated} of {head_dim} head dimensions; partial rotation is not converted"
            )
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **common,
            "hidden_act": "silu",
            "rope_traditional": False,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": "float16",
        }

    def names(self, layers: int) -> dict[str, str]:
        """By the gguf package's own map."""
        name_map = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
        inner = [f"model.layers.{layer}.{name}" for layer in range(layers) for name in _LAYER_NAMES]
        names: dict[str, str] = {}
        for name in (*_OUTER_NAMES, *inner):
            gguf_name = name_map.get_name(name)
            assert gguf_name is not None, name
            names[f"{gguf_name}.weight"] = f"{name}.weight"
        return names

    def stored(self, name: str, weight: np.ndarray, config: dict[str, Any]) -> StoredWeight:
        """float16."""
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        projection = name.split(".")[-2]
        if projection in heads:
            weight = unpermute(weight, heads[projection])
        return StoredWeight("float16", np.ascontiguousarray(weight, dtype=np.float16))


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undoes GGUF's row order of llama's q and k. weight: [heads * head_dim, hidden]; same shape out."""
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
