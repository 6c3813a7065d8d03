"""Steps by how rows keep their caches: the setups differ in what they should, and nothing else."""

import pytest

pytest.importorskip("mlx.core")

from bench.caches import random_layers
from bench.kv import apart, quantized
from bench.step import Schedule

ONCE = Schedule(rounds=1, steps_per_round=1)


def test_rows_far_apart_are_timed_as_one_group_and_as_several() -> None:
    """The padded group holds more; the ratio is of the groups over it."""
    line = apart(random_layers("llama"), (4_000, 20, 30, 40), ONCE)
    assert line.title == "4 rows, 1 and 2 groups"
    assert line.kv_bytes["one group"] > line.kv_bytes["groups"]
    assert list(line.over) == ["groups"]
    assert min(line.step_ms.values()) > 0


def test_quantized_rows_are_timed_beside_float_ones() -> None:
    """Fewer bits, fewer bytes."""
    line = quantized(random_layers("llama"), rows=2, tokens=40, group_size=32, schedule=ONCE)
    assert line.kv_bytes["plain"] > line.kv_bytes["8 bits"] > line.kv_bytes["4 bits"]
    assert list(line.over) == ["8 bits", "8 bits dense", "4 bits", "4 bits dense"]
    assert line.kv_bytes["4 bits"] == line.kv_bytes["4 bits dense"]
    assert "x" in line.text
