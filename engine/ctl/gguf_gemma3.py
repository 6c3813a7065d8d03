"""Gemma 3's text models: sliding windows with a full layer in between."""

from typing import Any, Final

import numpy as np

from engine.ctl.failure import CommandError
from engine.ctl.gguf_family import StoredWeight, common_config
from engine.ctl.gguf_metadata import Metadata

# What GGUF files of this family leave to their reader.
_PATTERN: Final = 6
_LOCAL_ROPE_BASE: Final = 10_000.0
# The one size whose attention is scaled by something else than its heads' width.
_LAYERS_OF_27B: Final = 62
_OUTER_NAMES: Final = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class Gemma3:
    """Kept in bfloat16, as it was trained: float16 overflows in it. GGUF stores norm weights plus one."""

    architecture = "gemma3"

    def config(self, metadata: Metadata, *, has_head: bool) -> dict[str, Any]:
        """For mlx-lm's `gemma3_text`."""
        common = common_config(metadata, self.architecture, has_head=has_head)
        head_dim = common["head_dim"]
        if common["num_hidden_layers"] == _LAYERS_OF_27B:
            raise CommandError("Gemma 3 27B scales its attention in a way of its own, which is not converted")
        if metadata.get("gemma3.attention.value_length", int, default=head_dim) != head_dim:
            raise CommandError("GGUF file has values of another width than keys, which is not converted")
        return {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            **common,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": head_dim,
            "rope_local_base_freq": metadata.get("gemma3.rope.freq_base_swa", float, default=_LOCAL_ROPE_BASE),
            "sliding_window": metadata.get("gemma3.attention.sliding_window", int),
            "sliding_window_pattern": metadata.get("gemma3.attention.sliding_window_pattern", int, default=_PATTERN),
            "torch_dtype": "bfloat16",
        }

    def names(self, layers: int) -> dict[str, str]:
        """Written out: the gguf package's map has two places for one of the norms."""
        inner = {
            f"blk.{layer}.{theirs}": f"model.layers.{layer}.{ours}"
            for layer in range(layers)
            for theirs, ours in _LAYER_NAMES.items()
        }
        return {f"{theirs}.weight": f"{ours}.weight" for theirs, ours in (_OUTER_NAMES | inner).items()}

    def stored(self, name: str, weight: np.ndarray, config: dict[str, Any]) -> StoredWeight:
        """bfloat16, norms as the model keeps them."""
        if name.split(".")[-2].endswith("norm"):
            weight = weight - np.float32(1.0)
        return StoredWeight("bfloat16", bfloat16_bits(weight))


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """float32 rounded to nearest even, as the upper halves: uint16 of the same shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) >> np.uint32(16)).astype(np.uint16)
