"""Llama 4 for rows at positions of their own: mlx-lm's weights and sums, without its one scalar offset per forward."""

from typing import Any

import mlx.core as mx
from mlx_lm.models import llama4
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention

from engine.cache.chunked import chunk_mask, drop_ended_chunks

# Every so many layers one sees the whole context, without rotation.
_GLOBAL_EVERY = 4


class _RowwiseAttention(llama4.Attention):
    """`cache.offset` may be an int or each row's own, [B] int32."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        """x: [B, L, hidden], as is the result."""
        rows, tokens, _ = x.shape
        # Asked for once: writing moves it.
        offset = cache.offset
        queries, keys, values = (
            projected.reshape(rows, tokens, heads, self.head_dim).transpose(0, 2, 1, 3)
            for projected, heads in (
                (self.q_proj(x), self.n_heads),
                (self.k_proj(x), self.n_kv_heads),
                (self.v_proj(x), self.n_kv_heads),
            )
        )
        if self.use_rope:
            queries, keys = self.rope(queries, offset=offset), self.rope(keys, offset=offset)
        if self.use_qk_norm:
            queries, keys = (mx.fast.rms_norm(each, weight=None, eps=1e-6) for each in (queries, keys))
        if self.attn_temperature_tuning and not self.use_rope:
            queries = (queries * self._temperatures(offset, tokens)).astype(queries.dtype)
        keys, values = cache.update_and_fetch(keys, values)
        output = scaled_dot_product_attention(queries, keys, values, cache=cache, scale=self.scale, mask=mask)
        return self.o_proj(output.transpose(0, 2, 1, 3).reshape(rows, tokens, -1))

    def _temperatures(self, offset: int | mx.array, tokens: int) -> mx.array:
        """By how much far positions' queries are raised: [L, 1], or [B, 1, L, 1]."""
        first = offset[:, None, None, None] if isinstance(offset, mx.array) else offset
        positions = first + mx.arange(1, tokens + 1)[:, None]
        return mx.log(mx.floor(positions / self.floor_scale) + 1.0) * self.attn_scale + 1.0


class _RowwiseLayers(llama4.LlamaModel):
    """Masks by the caches."""

    def __init__(self, args: llama4.TextArgs) -> None:
        super().__init__(args)
        for index, layer in enumerate(self.layers):
            layer.self_attn = _RowwiseAttention(args, index)

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        """inputs: [B, L] ids; the result: [B, L, hidden]."""
        hidden = self.embed_tokens(inputs)
        chunked = [each for index, each in enumerate(cache) if not _is_global(index)]
        for each in chunked:
            drop_ended_chunks(each)
        # mlx-lm's annotations know no "causal".
        masks: dict[bool, Any] = {
            False: chunk_mask(chunked[0], inputs.shape[1]),
            True: create_attention_mask(hidden, cache[_GLOBAL_EVERY - 1]),
        }
        for index, (layer, each) in enumerate(zip(self.layers, cache, strict=True)):
            hidden = layer(hidden, masks[_is_global(index)], cache=each)
        return self.norm(hidden)


class RowwiseLlama4(llama4.Model):
    """Takes mlx-lm's weights and caches, or batched ones."""

    def __init__(self, args: llama4.ModelArgs) -> None:
        super().__init__(args)
        self.language_model.model = _RowwiseLayers(args.text_config)  # pyright: ignore[reportArgumentType]  # made TextArgs by its __post_init__

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        """inputs: [B, L] ids; the result: logits [B, L, V]."""
        return super().__call__(inputs, cache=self.make_cache() if cache is None else cache)


def _is_global(index: int) -> bool:
    return (index + 1) % _GLOBAL_EVERY == 0
