"""Writes a whole, tiny Gemma 3 GGUF file, as llama.cpp lays it out."""

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

# The sixth layer sees everything. The width's root is a bfloat16, so that nothing is rounded by it.
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, WINDOW = 7, 64, 96, 4, 1, 32, 8
CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>"]
GIVEN = ["\n\n", "  ", "   ", "<td>"]
# In the order in which a trainer found them: each is better than the next.
LEARNED = ["▁t", "he", "▁the", "in", "ing", "▁s", "▁se", "▁sea", "▁", "a", "e", "g", "h", "i", "n", "s", "t"]


def pieces() -> list[str]:
    """Token i is piece i."""
    return [*CONTROL, *GIVEN, *(f"<0x{byte:02X}>" for byte in range(256)), *LEARNED]


def _types() -> list[int]:
    return [3] * len(CONTROL) + [4] * len(GIVEN) + [6] * 256 + [1] * len(LEARNED)


def _scores() -> list[float]:
    unlearned = len(CONTROL) + len(GIVEN) + 256
    return [-1000.0] * unlearned + [-float(rank) for rank in range(len(LEARNED))]


@dataclass(slots=True)
class TinyGemma3Gguf:
    """What a test changes before the file is written. values: metadata beside or instead of the usual."""

    without: str | None = None
    add_space_prefix: bool = False
    scores: list[float] = field(default_factory=_scores)
    layers: int = LAYERS
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def write(self, path: Path) -> dict[str, np.ndarray]:
        """Writes the file; returns its weights under GGUF names, norms plus one. All but norms are bfloat16s."""
        writer = gguf.GGUFWriter(path, "gemma3")
        self._add_shape(writer)
        self._add_tokenizer(writer)
        weights = {name: weight for name, weight in _weights().items() if name != self.without}
        for name, weight in weights.items():
            writer.add_tensor(name, weight)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return weights

    def _add_shape(self, writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(self.layers)
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD_DIM)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(1_000_000.0)
        writer.add_sliding_window(WINDOW)
        for name, number in self.numbers.items():
            writer.add_uint32(name, number)

    def _add_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(pieces())
        writer.add_token_scores(self.scores)
        writer.add_token_types(_types())
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(1)
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(self.add_space_prefix)


def _weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return _bfloat16s(random.normal(0, columns**-0.5, (rows, columns)))

    def norm(width: int) -> np.ndarray:
        return np.float32(1.0) + _bfloat16s(random.normal(0, 0.3, width))

    weights = {"token_embd.weight": matrix(len(pieces()), HIDDEN), "output_norm.weight": norm(HIDDEN)}
    for layer in range(LAYERS):
        parts = {
            "attn_norm": norm(HIDDEN),
            "attn_q": matrix(HEADS * HEAD_DIM, HIDDEN),
            "attn_k": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output": matrix(HIDDEN, HEADS * HEAD_DIM),
            "attn_q_norm": norm(HEAD_DIM),
            "attn_k_norm": norm(HEAD_DIM),
            "post_attention_norm": norm(HIDDEN),
            "ffn_norm": norm(HIDDEN),
            "ffn_gate": matrix(INNER, HIDDEN),
            "ffn_up": matrix(INNER, HIDDEN),
            "ffn_down": matrix(HIDDEN, INNER),
            "post_ffw_norm": norm(HIDDEN),
        }
        weights |= {f"blk.{layer}.{name}.weight": weight for name, weight in parts.items()}
    return weights


def _bfloat16s(values: np.ndarray) -> np.ndarray:
    """float32 that bfloat16 holds exactly: the lower half cut off."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)
