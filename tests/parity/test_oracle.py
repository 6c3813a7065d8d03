"""Batched rows against mlx-lm's BatchGenerator at the same B, token for token, and against their solo runs."""

import functools
from typing import Any

import mlx.nn as nn
import pytest

from engine import prefill
from engine.batch import Group
from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.model.support import probe_batching
from engine.row import Row
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.architectures import ARCHITECTURES, empty_model, random_model
from tests.parity.oracle import OracleRow, batch_tokens, solo_tokens

BATCHED = [name for name, architecture in ARCHITECTURES.items() if architecture.batches]
# Those that mlx-lm's own BatchGenerator runs.
ORACLES = [name for name in BATCHED if ARCHITECTURES[name].has_oracle]
# One of each mix of kinds.
ONE_OF_EACH = ["llama", "gemma3_text", "qwen3_5", "mamba2", "deepseek_v32", "falcon_h1"]
TOGETHER = [
    name for name in ORACLES if all(kind.prefills_together for kind in DEFAULT_PLAN.kinds(empty_model(name)) or ())
]


@functools.cache
def _plan(name: str) -> CachePlan:
    return probe_batching(random_model(name), 32).cache_plan


def _run(model: nn.Module, rows: list[OracleRow], plan: CachePlan = DEFAULT_PLAN) -> list[list[int]]:
    driver = LoopDriver(model, facts_of(model), cache_plan=plan)
    waiting = list(enumerate(rows))
    steps = 0
    while waiting or driver.live_ids():
        while waiting and waiting[0][1].joins_after <= steps:
            index, row = waiting.pop(0)
            driver.submit(str(index), row.prompt, max_tokens=row.max_tokens)
        driver.turn()
        steps += 1
        assert steps < 1_000
    return [driver.tokens(str(index)) for index in range(len(rows))]


@pytest.mark.parametrize(
    ("name", "lengths"), [*((name, (9, 31, 4, 80)) for name in ORACLES), *((name, (5, 17)) for name in ONE_OF_EACH)]
)
def test_static_batch_equals_the_oracle(name: str, lengths: tuple[int, ...]) -> None:
    """C1: rows of different lengths that start together give the oracle's tokens."""
    rows = [OracleRow(prompt_of(length, start), 40) for start, length in enumerate(lengths)]
    assert _run(random_model(name), rows, _plan(name)) == batch_tokens(random_model(name), rows)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [*((name, (19, 31, 24, 38)) for name in TOGETHER), ("llama", (30, 17)), ("llama", (9, 9, 9))],
)
def test_rows_prefilled_together_equal_the_oracles(
    name: str, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short prompts as one padded chunk give the tokens of the oracle that prefills as many together."""
    chunks: list[int] = []
    original = prefill.launch_together

    def recording(model: Any, kinds: Any, rows: list[Row]) -> Group:
        chunks.append(len(rows))
        return original(model, kinds, rows)

    monkeypatch.setattr(prefill, "launch_together", recording)
    rows = [OracleRow(prompt_of(length, start), 40) for start, length in enumerate(lengths)]
    assert _run(random_model(name), rows, _plan(name)) == batch_tokens(random_model(name), rows, len(rows))
    assert chunks == [len(rows)]


@pytest.mark.parametrize(
    ("name", "joiner_length"), [*((name, 60) for name in ORACLES), *((name, 3) for name in ONE_OF_EACH)]
)
def test_join_and_leave_equal_the_oracle(name: str, joiner_length: int) -> None:
    """C2: a join in the middle of decode, a leave, and a join again give the oracle's tokens."""
    rows = [
        OracleRow(prompt_of(20, 1), 50),
        OracleRow(prompt_of(7, 2), 12),
        OracleRow(prompt_of(joiner_length, 3), 45, joins_after=6),
        OracleRow(prompt_of(11, 4), 30, joins_after=25),
    ]
    assert _run(random_model(name), rows, _plan(name)) == batch_tokens(random_model(name), rows)


@pytest.mark.parametrize("name", BATCHED)
def test_batched_rows_equal_their_solo_runs(name: str) -> None:
    """On CPU float32 a row's tokens do not depend on who decodes beside it."""
    rows = [OracleRow(prompt_of(6 + 13 * index, index), 30 + index, joins_after=4 * index) for index in range(4)]
    expected = [solo_tokens(random_model(name), row.prompt, row.max_tokens) for row in rows]
    assert _run(random_model(name), rows, _plan(name)) == expected


def test_long_rows_equal_the_oracle_past_a_buffer_growth() -> None:
    """Buffers grow in steps of 256 columns, also while padded: tokens go on as the oracle's."""
    rows = [OracleRow(prompt_of(250, 1), 30), OracleRow(prompt_of(100, 2), 60), OracleRow(prompt_of(511, 3), 20)]
    assert _run(tiny_model("llama"), rows) == batch_tokens(tiny_model("llama"), rows)
