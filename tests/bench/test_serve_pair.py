"""A pair's ratios are ours over theirs, medians per concurrency; pairs alternate their order."""

from typing import Any

import pytest

from bench import serve_pair
from bench.load import Round, Workload
from bench.serve_pair import Pair, PairFigures, figures_of, run_pairs


def _round(concurrency: int, tokens_per_s: float, ttft_p50_ms: float = 1.0, largest_gap_ms: float = 1.0) -> Round:
    return Round(concurrency, tokens_per_s, ttft_p50_ms, 1.0, largest_gap_ms, 1.0, 1, 1)


def test_figures_are_medians_of_paired_ratios() -> None:
    """Three pairs at one concurrency and one at another."""
    pairs = [
        Pair(_round(8, 20, 4, 6), _round(8, 10, 8, 2)),
        Pair(_round(8, 90, 6, 2), _round(8, 30, 3, 2)),
        Pair(_round(8, 10, 1, 4), _round(8, 10, 1, 2)),
        Pair(_round(1, 3), _round(1, 4)),
    ]
    assert figures_of(pairs) == [PairFigures(8, 3, 2.0, 1.0, 2.0), PairFigures(1, 1, 0.75, 1.0, 1.0)]


async def test_pairs_alternate_and_only_one_server_works_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a warm-up of each, who goes first changes with every pair."""
    asked: list[str] = []

    async def answer(session: Any, workload: Workload, concurrency: int) -> Round:
        asked.append(workload.url)
        return _round(concurrency, 2.0 if workload.url == "ours" else 1.0)

    monkeypatch.setattr(serve_pair, "run_round", answer)
    pairs = await run_pairs(Workload("ours", "m", 1), Workload("theirs", "m", 1), [4], 3)
    assert asked == ["ours", "theirs", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [(pair.throughput, pair.ours.concurrency) for pair in pairs] == [(2.0, 4)] * 3
