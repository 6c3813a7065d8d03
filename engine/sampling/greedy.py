"""The likeliest token of each row.

Owns the one shortcut that a CPU needs; on other devices it is argmax as it stands.
"""

from typing import Final

import mlx.core as mx

# MLX's argmax walks one value at a time on a CPU, and its max does not: [32, 49152] take 1.3 ms and 0.6 in blocks.
_BLOCK: Final = 32
_LEAST_VOCABULARY: Final = 4_096


def likeliest_tokens(logits: mx.array) -> mx.array:
    """argmax over the last axis, of ties the first. logits: [B, V]; returns [B] uint32."""
    vocabulary_size = logits.shape[-1]
    if mx.default_device().type != mx.DeviceType.cpu or logits.dtype != mx.float32:
        return mx.argmax(logits, axis=-1)
    if vocabulary_size < _LEAST_VOCABULARY or vocabulary_size % _BLOCK:
        return mx.argmax(logits, axis=-1)
    blocks = logits.reshape(logits.shape[0], -1, _BLOCK)
    best = mx.argmax(blocks.max(axis=-1), axis=-1, keepdims=True)
    block = mx.take_along_axis(blocks, best[:, :, None], axis=1)[:, 0]
    return (best * _BLOCK + mx.argmax(block, axis=-1, keepdims=True))[:, 0]
