"""A model whose forward never returns for one prompt. As a file of its own it goes into a model's folder."""

import threading
from typing import Any

import mlx.core as mx
from mlx_lm.models import llama

# A prompt of nothing but this token; a reply has it among others, one at a time.
STUCK_ID = 500
STUCK_PROMPT = [STUCK_ID] * 6

ModelArgs = llama.ModelArgs


class Model(llama.Model):
    """A llama, as long as nobody sends STUCK_PROMPT."""

    def __call__(self, inputs: mx.array, cache: Any = None, input_embeddings: mx.array | None = None) -> mx.array:
        """inputs: [B, L] ids; the result: logits [B, L, V]."""
        if inputs.shape[1] > 1 and (inputs == STUCK_ID).all().item():
            threading.Event().wait()
        return super().__call__(inputs, cache, input_embeddings)
