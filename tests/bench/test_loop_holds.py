"""bench.loop_holds: a hold counts for the request it fell into, and one run gives a line for each."""

import sys
from pathlib import Path

import pytest

from bench import loop_holds
from bench.loop_holds import Asked, report
from bench.watched_frontend import Hold, Sample, Seen
from tests.fakes.tokenizer_folder import build_tokenizer_folder


def test_a_hold_is_told_with_its_request() -> None:
    """The longest of all rounds, and what threads did meanwhile; one outside of them is nobody's."""
    asked = [Asked("a", 1.0, 2.0, [1.0, 2.0]), Asked("b", 3.0, 4.0, [5.0]), Asked("a", 5.0, 6.0, [3.0])]
    holds = [Hold(1.5, 0.010), Hold(2.5, 0.5), Hold(5.5, 0.025, 0.005)]
    samples = [Sample(5.51, {"tokenize_0": "text/template.py:render"}), Sample(7.0, {"tokenize_0": "no"})]
    lines = report(asked, Seen(holds, samples))
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["a", "b"]
    assert "longest hold   25.0 ms,  20.0 without waits" in lines[0]
    assert "largest    3.0 ms of 3" in lines[0]
    assert "20.0 ms: 1x tokenize_0: text/template.py:render" in lines[1]
    assert "longest hold    0.0 ms" in lines[-1]


def test_a_case_may_be_over_before_its_first_probe() -> None:
    """It has no latencies, and its holds count all the same."""
    (line,) = report([Asked("a", 1.0, 2.0, [])], Seen([Hold(1.5, 0.010)], []))
    assert "longest hold   10.0 ms" in line
    assert "not asked" in line


def test_a_run_tells_each_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three processes, one short round."""
    model = build_tokenizer_folder(tmp_path / "model")
    words = [str(model), "--characters", "3000", "--rounds", "1", "--only", "tokenize", "apply-template"]
    monkeypatch.setattr(sys, "argv", ["loop_holds", *words])
    loop_holds.main()
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == ["tokenize", "apply-template", "the"]
