"""The bench of rows that leave their prefixes: both passes do the same work, and only one keeps something."""

import pytest

pytest.importorskip("mlx.core")

from bench.caches import random_layers
from bench.leaving import Work, run
from bench.step_runners import fixed_prompts, vocabulary_size


@pytest.mark.parametrize("ceiling_bytes", [0, 1 << 30])
def test_all_visitors_come_and_go(ceiling_bytes: int) -> None:
    """Each gets its tokens; with a ceiling each leaves its prefix, and none finds one."""
    model = random_layers("llama")
    work = Work(rows=3, prompts=7, prompt_tokens=40, most_tokens=6)
    done = run(model, fixed_prompts(work.prompts, vocabulary_size(model), work.prompt_tokens), work, ceiling_bytes)
    assert done.wall_s > 0
    assert (done.kept.entries, done.kept.hits) == (7 if ceiling_bytes else 0, 0)
