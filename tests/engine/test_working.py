"""What a chunk needs beside weights and caches."""

import pytest

from engine import prefill
from engine.working import WorkingMemory, measure_working_memory
from tests.fakes.models import tiny_model


def test_it_grows_with_the_chunk() -> None:
    """Activations of 512 tokens are more than those of 32, and at least the layers' inputs."""
    small, large = (measure_working_memory(tiny_model("llama"), tokens) for tokens in (32, 512))
    assert 0 < small.chunk_bytes < large.chunk_bytes
    hidden_bytes = 512 * tiny_model("llama").args.hidden_size * 4
    assert large.chunk_bytes > 2 * hidden_bytes


def test_what_is_before_a_chunk_counts() -> None:
    """Scores over what was read before are held for the while."""
    working = WorkingMemory(chunk_bytes=1_000, context_token_bytes=10)
    assert [working.of(tokens) for tokens in (0, 7)] == [1_000, 1_070]
    assert measure_working_memory(tiny_model("llama"), 256).context_token_bytes > 0


def test_two_chunks_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what lies before the second is made: a start waits for no more."""
    waited: list[int] = []
    original = prefill.wait_for_chunk
    monkeypatch.setattr(prefill, "wait_for_chunk", lambda caches: (waited.append(1), original(caches)))
    measure_working_memory(tiny_model("llama"), 64)
    assert len(waited) == 3
