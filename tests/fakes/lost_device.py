"""A model after one prompt of which every forward fails. As a file of its own it goes into a model's folder."""

from typing import Any

import mlx.core as mx
from mlx_lm.models import llama

# A prompt of nothing but this token; a reply has it among others, one at a time.
FATAL_ID = 500
FATAL_PROMPT = [FATAL_ID] * 6
WORDS = "CUDA error: an illegal memory access was encountered"

ModelArgs = llama.ModelArgs


class Model(llama.Model):
    """A llama, until somebody sends FATAL_PROMPT."""

    is_lost = False

    def __call__(self, inputs: mx.array, cache: Any = None, input_embeddings: mx.array | None = None) -> mx.array:
        """inputs: [B, L] ids; the result: logits [B, L, V]."""
        Model.is_lost |= inputs.shape[1] > 1 and (inputs == FATAL_ID).all().item() is True
        if Model.is_lost:
            raise RuntimeError(WORDS)
        return super().__call__(inputs, cache, input_embeddings)
