"""Writes a whole, tiny llama GGUF file whose Hugging Face weights are known."""

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 4, 2, 8, 48, 2
HIDDEN = HEADS * HEAD_DIM
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokens() -> list[str]:
    """Special tokens, the 256 byte tokens, then what the merges make."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
    return [*SPECIAL, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k."""
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, pairs, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def make_weights() -> dict[str, np.ndarray]:
    """Hugging Face names; every value is a float16, so that a float16 file is exact."""
    random = np.random.default_rng(7)
    shapes = {"model.embed_tokens": (len(tokens()), HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm": (HIDDEN,),
            f"{prefix}.post_attention_layernorm": (HIDDEN,),
            f"{prefix}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.mlp.gate_proj": (INNER, HIDDEN),
            f"{prefix}.mlp.up_proj": (INNER, HIDDEN),
            f"{prefix}.mlp.down_proj": (HIDDEN, INNER),
        }
    return {f"{name}.weight": random.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face weight, written out by hand: the oracle of the converter's map."""
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[rest.removesuffix('.weight')]}.weight"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]


@dataclass(slots=True)
class TinyGguf:
    """What a test changes before the file is written."""

    architecture: str = "llama"
    tokenizer: str = "gpt2"
    pre: str = "smollm"
    merges: list[str] = field(default_factory=lambda: list(MERGES))
    tokens: list[str] = field(default_factory=tokens)
    rope_scaling: str | None = None
    rotated: int = HEAD_DIM
    without: str | None = None
    extra: str | None = None
    quantized: gguf.GGMLQuantizationType | None = None

    def write(self, path: Path) -> dict[str, np.ndarray]:
        """Writes the file; returns its weights under Hugging Face names."""
        writer = gguf.GGUFWriter(path, self.architecture)
        self._add_shape(writer)
        self._add_tokenizer(writer)
        weights = make_weights()
        for name, weight in weights.items():
            heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
            stored = permute(weight, heads) if heads else weight
            if gguf_name(name) != self.without:
                self._add_weight(writer, gguf_name(name), stored)
        if self.extra:
            writer.add_tensor(self.extra, np.zeros(4, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return weights

    def _add_weight(self, writer: gguf.GGUFWriter, name: str, stored: np.ndarray) -> None:
        if self.quantized is None or stored.ndim < 2 or stored.shape[1] % 32:
            writer.add_tensor(name, stored)
        else:
            packed = gguf.quants.quantize(stored.astype(np.float32), self.quantized)
            writer.add_tensor(name, packed, raw_dtype=self.quantized)

    def _add_shape(self, writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(LAYERS)
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(100_000.0)
        writer.add_rope_dimension_count(self.rotated)
        if self.rope_scaling:
            writer.add_string("llama.rope.scaling.type", self.rope_scaling)

    def _add_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model(self.tokenizer)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types([3 if token in SPECIAL else 1 for token in self.tokens])
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_pad_token_id(2)
        writer.add_add_bos_token(False)
        writer.add_chat_template(TEMPLATE)
