"""A model whose forward never lets go of the interpreter's lock for one prompt; for a model's folder."""

import ctypes
from typing import Any

import mlx.core as mx
from mlx_lm.models import llama

# A prompt of nothing but this token; a reply has it among others, one at a time.
HOLDING_ID = 500
HOLDING_PROMPT = [HOLDING_ID] * 6

ModelArgs = llama.ModelArgs


class Model(llama.Model):
    """A llama, as long as nobody sends HOLDING_PROMPT."""

    def __call__(self, inputs: mx.array, cache: Any = None, input_embeddings: mx.array | None = None) -> mx.array:
        """inputs: [B, L] ids; the result: logits [B, L, V]."""
        if inputs.shape[1] > 1 and (inputs == HOLDING_ID).all().item():
            # A library loaded so is called with the interpreter's lock held; this one waits for itself.
            library = ctypes.PyDLL(None)
            mutex = ctypes.create_string_buffer(256)
            library.pthread_mutex_init(mutex, None)
            for _ in range(2):
                library.pthread_mutex_lock(mutex)
        return super().__call__(inputs, cache, input_embeddings)
