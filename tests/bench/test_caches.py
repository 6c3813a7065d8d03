"""The caches' bench runs on every kind that it names, and compares like with like."""

import pytest

pytest.importorskip("mlx.core")

from bench.caches import CACHES, MODELS, Figures, compared, step_ratio
from bench.step import Schedule


@pytest.mark.parametrize("name", CACHES)
def test_every_kind_is_timed(name: str) -> None:
    """Both sides' joins and leaves take time."""
    figures = compared(name, rounds=1)
    assert figures.kind == name
    assert min(*figures.join_ms, *figures.write_ms, *figures.keep_ms) > 0


def test_a_line_has_the_ratios() -> None:
    """Ours over theirs."""
    line = Figures("plain", (1.0, 4.0), (2.0, 8.0), (3.0, 2.0)).line
    assert "x0.25" in line
    assert "x1.50" in line


@pytest.mark.parametrize("name", MODELS)
def test_every_model_steps(name: str) -> None:
    """A step of ours over the bare loop's."""
    bare_ms, ratio = step_ratio(name, Schedule(rounds=1, steps_per_round=1))
    assert bare_ms > 0
    assert ratio > 0
