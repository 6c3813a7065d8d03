"""What the loop says of itself, and what becomes of the loop when that fails."""

import pytest

from engine.memory import Allocator
from protocol.status import MemoryStatus
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


def test_a_status_that_cannot_be_built_costs_no_row(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once until it has gone well, and tried again; the board keeps what it had."""
    monkeypatch.setattr("engine.report.PUBLISH_EVERY_S", 0.0)
    original = Allocator.status
    is_failing = True
    calls = 0

    def status(allocator: Allocator, kv_bytes: int, ledger_bytes: int) -> MemoryStatus:
        nonlocal calls
        calls += 1
        if is_failing:
            raise RuntimeError("no such counter")
        return original(allocator, kv_bytes, ledger_bytes)

    monkeypatch.setattr(Allocator, "status", status)
    for round_ in range(2):
        is_failing = True
        driver.submit(f"{round_}", prompt_of(9))
        driver.run_until_idle()
        assert driver.tokens(f"{round_}") == solo_tokens(tiny_model("llama"), prompt_of(9), 20)
        assert calls > 10
        assert driver.board.status().counters.finished == round_
        is_failing = False
        driver.turn()
        assert driver.board.status().counters.finished == round_ + 1
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["status.unpublished"] * 2


def test_a_stop_without_a_status_is_a_stop(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last status is tried, too."""

    def failing(*_: object) -> MemoryStatus:
        raise RuntimeError("no such counter")

    monkeypatch.setattr(Allocator, "status", failing)
    driver.stop.set()
    driver.loop.run()
    assert driver.mailbox.goodbyes == 1
