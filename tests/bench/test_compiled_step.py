"""The compiled step says what the bare loop says, and ends where its buffers do."""

import pytest

pytest.importorskip("mlx.core")

from bench.caches import random_layers
from bench.compiled_step import CAPACITY, CompiledLoop, compared
from bench.step import Schedule
from bench.step_runners import PROMPT_TOKENS, BareLoop, fixed_prompts, vocabulary_size


def test_it_decodes_the_same_tokens() -> None:
    """What is timed is the same work."""
    model = random_layers("llama")
    prompts = fixed_prompts(1, vocabulary_size(model))
    bare, compiled = BareLoop(model, prompts), CompiledLoop(model, prompts)
    for _ in range(20):
        bare.step()
        compiled.step()
        assert compiled.register.flatten().tolist() == bare.register.tolist()


def test_it_ends_where_its_buffers_do() -> None:
    """Instead of writing over the last column."""
    model = random_layers("llama")
    compiled = CompiledLoop(model, fixed_prompts(1, vocabulary_size(model)))
    for _ in range(CAPACITY - PROMPT_TOKENS):
        compiled.step()
    with pytest.raises(RuntimeError, match=f"room for {CAPACITY} tokens"):
        compiled.step()


def test_all_are_timed() -> None:
    """The bare loop, ours and the compiled one."""
    assert list(compared(random_layers("llama"), Schedule(1, 1))) == ["bare", "decode", "compiled"]
