"""Small models true to their architectures: mlx-lm's own ModelArgs, random weights, greedy text that varies."""

from engine import openblas  # isort: skip  # noqa: F401  # before MLX

import functools
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from bench.random_model import LEAST_DISTINCT_IDS, LEAST_MARGIN, GreedyRun, greedy_run
from engine.model.classes import model_classes

VOCABULARY = 256
WINDOW = 8
DRAWS = 16
HEAD_GAIN = 3.0
CHECKED_PROMPT = [7, 91, 33, 150, 18, 204, 66]

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "head_dim": 32,
    "max_position_embeddings": 4_096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "tie_word_embeddings": False,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
LINEAR_ATTENTION: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}
LATENT: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 24,
    "v_head_dim": 32,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_proj_bias": False,
    "mamba_d_state": 32,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_conv_bias": True,
}


@dataclass(frozen=True)
class Architecture:
    """arguments: beside COMMON. nested: they go under `text_config`.

    embedding_gain: small where the head is the embedding, or the model repeats its last token for ever.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    nested: bool = False
    embedding_gain: float = 1.0
    batches: bool = True
    has_oracle: bool = True


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "qwen3_moe": Architecture(EXPERTS),
    "qwen3_5": Architecture(LINEAR_ATTENTION, nested=True),
    "qwen3_next": Architecture(
        EXPERTS | LINEAR_ATTENTION | {"shared_expert_intermediate_size": 32, "partial_rotary_factor": 0.25}
    ),
    "gemma2": Architecture({"query_pre_attn_scalar": 32}, embedding_gain=0.05, has_oracle=False),
    "gemma3_text": Architecture(
        {"sliding_window": WINDOW, "sliding_window_pattern": 2, "query_pre_attn_scalar": 32, "num_key_value_heads": 1}
    ),
    "gemma4_text": Architecture(
        {
            "global_head_dim": 64,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCABULARY,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        }
    ),
    "gpt_oss": Architecture({"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v3": Architecture(LATENT),
    "glm4_moe": Architecture(
        EXPERTS
        | {
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 1,
            "n_routed_experts": 4,
            "routed_scaling_factor": 1.0,
            "first_k_dense_replace": 1,
            "rope_scaling": None,
            "use_qk_norm": True,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
        }
    ),
    "glm4_moe_lite": Architecture(LATENT),
    "mamba2": Architecture(
        {
            "num_heads": 4,
            "state_size": 32,
            "layer_norm_epsilon": 1e-5,
            "conv_kernel": 4,
            "n_groups": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_limit": (0.0, 100.0),
            "time_step_rank": "auto",
        }
    ),
    "granitemoehybrid": Architecture(
        MAMBA
        | {
            "attention_bias": False,
            "embedding_multiplier": 1.0,
            "attention_multiplier": 32**-0.5,
            "logits_scaling": 1.0,
            "residual_multiplier": 1.0,
            "layer_types": ["mamba", "attention", "mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
        }
    ),
    "lfm2": Architecture(
        {
            "norm_eps": 1e-5,
            "conv_bias": False,
            "conv_L_cache": 3,
            "block_dim": 64,
            "block_multiple_of": 32,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [1, 3],
        },
        embedding_gain=0.05,
    ),
    "nemotron_h": Architecture(
        {
            "attention_bias": False,
            "mamba_num_heads": 4,
            "mamba_head_dim": 32,
            "mamba_proj_bias": False,
            "ssm_state_size": 32,
            "conv_kernel": 4,
            "n_groups": 1,
            "mlp_bias": False,
            "layer_norm_epsilon": 1e-5,
            "use_bias": False,
            "use_conv_bias": True,
            "hybrid_override_pattern": ["M", "-", "*", "M", "-", "*"],
        }
    ),
    "deepseek_v32": Architecture(LATENT | {"index_head_dim": 32, "index_n_heads": 4, "index_topk": 24}),
    "falcon_h1": Architecture(
        {
            "mamba_d_ssm": 128,
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_d_state": 32,
            "lm_head_multiplier": 1.0,
            "embedding_multiplier": 1.0,
            "ssm_multipliers": [1.0] * 5,
            "mlp_multipliers": [1.0, 1.0],
            "key_multiplier": 1.0,
        }
    ),
    "llama4": Architecture(
        {
            "attention_bias": False,
            "attention_chunk_size": WINDOW,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 128,
            "num_experts_per_tok": 1,
            "num_local_experts": 4,
            "rope_scaling": None,
            "use_qk_norm": True,
            # Far positions raise their queries from 16 on, not from 8,192.
            "floor_scale": 16,
            "attn_scale": 0.3,
        },
        nested=True,
        has_oracle=False,
    ),
}


@functools.cache
def random_model(name: str) -> nn.Module:
    """The first of a fixed sequence of draws whose greedy text varies and is clear of rounding; float32.

    Raises AssertionError when there is none: a test on such a model would prove nothing.
    """
    model = empty_model(name)
    runs: list[GreedyRun] = []
    for draw in range(DRAWS):
        random = np.random.default_rng([draw, len(name)])
        parameters: list[tuple[str, mx.array]] = tree_flatten(model.parameters())
        weights = [(key, _weight(key, old, random, ARCHITECTURES[name].embedding_gain)) for key, old in parameters]
        model.load_weights(weights, strict=False)
        mx.eval(model.parameters())
        runs.append(greedy_run(model, CHECKED_PROMPT))
        if runs[-1].can_fail:
            return model
    seen = [(len(set(run.ids)), round(run.least_margin, 5)) for run in runs]
    message = f"{name}: no draw gives {LEAST_DISTINCT_IDS} distinct ids with margins over {LEAST_MARGIN}: {seen}"
    raise AssertionError(message)


def empty_model(name: str) -> nn.Module:
    """The model as the engine makes it, untrained."""
    config = config_of(name)
    classes = model_classes(config)
    return classes.model(classes.arguments.from_dict(config))


def config_of(name: str) -> dict[str, Any]:
    """As a config.json would have it."""
    architecture = ARCHITECTURES[name]
    arguments = COMMON | {"model_type": name} | architecture.arguments
    return {"model_type": name, "text_config": arguments} if architecture.nested else arguments


def _weight(name: str, old: mx.array, random: np.random.Generator, embedding_gain: float) -> mx.array:
    """Sharp attention keeps the text from falling into a loop, and a wide head keeps its margins wide."""
    values = random.standard_normal(old.shape, dtype=np.float32)
    leaf = name.rsplit(".", 1)[-1]
    if leaf == "A_log":
        values = np.log(1 + 3 * np.abs(values))
    elif values.ndim == 1:
        values = 0.1 * values + (1.0 if "norm" in name or leaf == "D" else 0.0)
    elif "embeddings" in name or "embed_tokens" in name:
        values = embedding_gain * values
    else:
        values = values / np.sqrt(np.prod(values.shape[1:]) if "conv" in name else values.shape[-1])
        if name.endswith(("q_proj.weight", "k_proj.weight", "q_b_proj.weight")):
            values = 2.0 * values
        if name.endswith("lm_head.weight"):
            values = HEAD_GAIN * values
    return mx.array(values).astype(mx.float32)
