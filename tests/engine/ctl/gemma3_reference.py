"""Gemma 3's forward in numpy on a GGUF file's own tensors: what a converted folder must compute in mlx-lm."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

LOCAL_BASE, GLOBAL_BASE, PATTERN = 10_000.0, 1_000_000.0, 6


class Gemma3Reference:
    """The file's weights, dequantized one by one. Norm weights are used as they are stored: plus one."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._fields = reader.fields

    def logits(self, ids: list[int]) -> np.ndarray:
        """[len(ids), vocabulary] float32 of a whole prompt at once."""
        embedding = self._weight("token_embd")
        # mlx-lm and transformers scale by the bfloat16 nearest to the root.
        hidden = embedding[ids] * _bfloat16(np.sqrt(np.float32(embedding.shape[1])))
        for layer in range(self._number("block_count")):
            hidden = self._after_layer(f"blk.{layer}", hidden, is_global=(layer + 1) % PATTERN == 0)
        return self._normed(hidden, "output_norm") @ embedding.T

    def _after_layer(self, layer: str, hidden: np.ndarray, *, is_global: bool) -> np.ndarray:
        attended = self._attention(layer, self._normed(hidden, f"{layer}.attn_norm"), is_global=is_global)
        hidden = hidden + self._normed(attended, f"{layer}.post_attention_norm")
        inner = self._normed(hidden, f"{layer}.ffn_norm")
        gated = _gelu(inner @ self._weight(f"{layer}.ffn_gate").T) * (inner @ self._weight(f"{layer}.ffn_up").T)
        return hidden + self._normed(gated @ self._weight(f"{layer}.ffn_down").T, f"{layer}.post_ffw_norm")

    def _attention(self, layer: str, inputs: np.ndarray, *, is_global: bool) -> np.ndarray:
        heads, kv_heads = self._number("attention.head_count"), self._number("attention.head_count_kv")
        width = self._number("attention.key_length")
        tokens = len(inputs)
        queries, keys, values = (
            (inputs @ self._weight(f"{layer}.attn_{name}").T).reshape(tokens, -1, width) for name in "qkv"
        )
        base = GLOBAL_BASE if is_global else LOCAL_BASE
        queries = _rotated(self._normed(queries, f"{layer}.attn_q_norm"), base)
        keys = _rotated(self._normed(keys, f"{layer}.attn_k_norm"), base)
        ages = np.arange(tokens)[:, None] - np.arange(tokens)
        is_seen = (ages >= 0) & (is_global | (ages < self._number("attention.sliding_window")))
        found = np.empty_like(queries)
        for head in range(heads):
            of_head = head // (heads // kv_heads)
            scores = queries[:, head] @ keys[:, of_head].T / np.sqrt(np.float32(width))
            found[:, head] = _softmax(np.where(is_seen, scores, -np.inf)) @ values[:, of_head]
        return found.reshape(tokens, -1) @ self._weight(f"{layer}.attn_output").T

    def _normed(self, values: np.ndarray, name: str) -> np.ndarray:
        epsilon = np.float32(self._field("attention.layer_norm_rms_epsilon"))
        return values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + epsilon) * self._weight(name)

    def _weight(self, name: str) -> np.ndarray:
        tensor = self._tensors[f"{name}.weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def _number(self, name: str) -> int:
        return int(self._field(name))

    def _field(self, name: str) -> Any:
        return self._fields[f"gemma3.{name}"].contents()


def _rotated(values: np.ndarray, base: float) -> np.ndarray:
    """Halves, not pairs. values: [tokens, heads, width]."""
    half = values.shape[-1] // 2
    angles = np.arange(len(values))[:, None] * base ** (-np.arange(half) / half)
    sine, cosine = (wave(angles).astype(np.float32)[:, None, :] for wave in (np.sin, np.cos))
    left, right = values[..., :half], values[..., half:]
    return np.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)


def _gelu(values: np.ndarray) -> np.ndarray:
    return 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _bfloat16(value: np.float32) -> np.float32:
    bits = int(np.asarray(value, np.float32).view(np.uint32))
    return np.asarray((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16, np.uint32).view(np.float32)[()]
