"""Requests of different priorities: who is admitted, and whose prompt is computed, first."""

from collections import deque
from typing import Any

import pytest

from engine import prefill
from engine.priority import queue_by_priority
from engine.row import Row, RowKey, make_row
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from tests.fakes.loop_driver import EPOCH, LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


def _row(name: str, priority: int) -> Row:
    prompt = TokenPrompt(ids=pack_ids([5]))
    submit = Submit(epoch=EPOCH, id=SubmitId(name), group=name, model="model", prompt=prompt, priority=priority)
    return make_row(RowKey(b"client", submit.id), submit, facts_of(tiny_model("llama")), 0.0)


def test_higher_priorities_go_first_and_equals_in_order() -> None:
    """Each row stands behind all of its priority."""
    waiting: deque[Row] = deque()
    for name, priority in (("a", 0), ("b", 2), ("c", 0), ("d", -(2**53)), ("e", 2), ("f", 1), ("g", 2**53)):
        queue_by_priority(waiting, _row(name, priority))
    assert [row.key.id for row in waiting] == ["g", "b", "e", "f", "a", "c", "d"]


def test_a_free_row_goes_to_the_most_urgent() -> None:
    """E12: with a cap of one, what waits is served by priority, and each has its own words."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=1))
    priorities = {"running": 0, "low": -1, "normal": 0, "urgent": 5, "also": 5}
    for index, (id_, priority) in enumerate(priorities.items()):
        driver.submit(id_, prompt_of(5 + index, index), max_tokens=4, priority=priority)
        driver.turn(1 if id_ == "running" else 0)
    driver.run_until_idle()
    assert [delta.id for delta in driver.deltas if delta.finish] == ["running", "urgent", "also", "normal", "low"]
    expected = [solo_tokens(tiny_model("llama"), prompt_of(5 + index, index), 4) for index in range(5)]
    assert [driver.tokens(id_) for id_ in priorities] == expected


def test_the_most_urgent_prompt_is_computed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """E12: a long urgent prompt goes before one that is half way and before a short one, and nobody's words change."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    launches: list[str] = []
    original = prefill.launch_chunk

    def recording(model: Any, row: Any, chunk_tokens: int) -> int:
        launches.append(row.key.id)
        if len(launches) == 2:
            driver.submit("urgent", prompt_of(60, 1), max_tokens=4, priority=1)
            driver.submit("short", prompt_of(9, 2), max_tokens=4)
        return original(model, row, chunk_tokens)

    monkeypatch.setattr(prefill, "launch_chunk", recording)
    driver.submit("long", prompt_of(200), max_tokens=4)
    driver.run_until_idle()
    assert launches[:8] == ["long", "long", "urgent", "urgent", "urgent", "urgent", "short", "long"]
    expected = [solo_tokens(tiny_model("llama"), prompt_of(length, n), 4) for n, length in enumerate((200, 60, 9))]
    assert [driver.tokens(id_) for id_ in ("long", "urgent", "short")] == expected
