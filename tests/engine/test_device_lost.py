"""A device that fails whatever it is asked ends the engine; rows that fail by themselves never do."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.models import prompt_of, tiny_model  # isort: skip  # before MLX

import mlx.core as mx

from engine import decode, prefill
from engine.containment import FAULTS_BEFORE_DOUBT
from engine.errors import DeviceLost
from engine.row import Row
from protocol.errors import ErrorCode
from tests.fakes.loop_driver import LoopDriver
from tests.parity.oracle import solo_tokens

STICKY = "CUDA error: an illegal memory access was encountered"
# Longer than a chunk: each is computed alone.
LONG = 40


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time the device was doubted and checked."""
    asked: list[str] = []
    original = prefill.forward_one

    def forward_one(model: Any) -> None:
        asked.append("asked")
        original(model)

    monkeypatch.setattr(prefill, "forward_one", forward_one)
    return asked


def break_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on everything that waits for it fails in the same way."""

    def failing(*_: Any) -> Any:
        raise RuntimeError(STICKY)

    for name in ("eval", "async_eval"):
        monkeypatch.setattr(mx, name, failing)


def submit_long(driver: LoopDriver, count: int) -> list[str]:
    """Rows with long prompts of their own."""
    ids = [f"{number}" for number in range(count)]
    for number, id_ in enumerate(ids):
        driver.submit(id_, prompt_of(LONG, number), max_tokens=4)
    return ids


def test_a_lost_device_ends_the_loop_with_every_row_told(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    """Three rows fail by it, the others are told to come again, and clients hear that the engine goes."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    ids = submit_long(driver, 12)
    break_device(monkeypatch)
    with pytest.raises(DeviceLost, match="3 faults in a row.*" + STICKY):
        driver.loop.run()
    codes = [driver.finish(id_).code for id_ in ids]
    assert codes == [ErrorCode.PREFILL_FAILED] * FAULTS_BEFORE_DOUBT + [ErrorCode.SHUTTING_DOWN] * 9
    assert all(STICKY in driver.finish(id_).message for id_ in ids)
    assert checks == ["asked"]
    assert driver.mailbox.goodbyes == 1
    assert driver.board.status().counters.failed == 12


def test_a_device_that_is_lost_between_steps_is_noticed_by_those_who_come(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch, checks: list[str]
) -> None:
    """The running rows fail together, which is one fault; the next requests make it three."""
    for number in range(3):
        driver.submit(f"running {number}", prompt_of(6, number))
    driver.turn(3)
    break_device(monkeypatch)
    driver.turn()
    assert [driver.finish(f"running {number}").code for number in range(3)] == [ErrorCode.DECODE_FAILED] * 3
    driver.submit("next", prompt_of(6))
    driver.turn()
    assert driver.finish("next").code == ErrorCode.PREFILL_FAILED
    assert checks == []
    driver.submit("last", prompt_of(6, 1))
    with pytest.raises(DeviceLost):
        driver.turn()
    assert driver.finish("last").code == ErrorCode.PREFILL_FAILED


def test_faults_with_work_done_between_them_are_no_loss(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    """Every other read fails, for a hundred of them."""
    driver = LoopDriver(tiny_model("llama"))
    original = decode.read
    calls = 0

    def flaky(register: mx.array) -> list[int]:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise RuntimeError("[METAL] Command buffer execution failed: Impacting Interactivity")
        return original(register)

    monkeypatch.setattr(decode, "read", flaky)
    for number in range(100):
        driver.submit(f"{number}", prompt_of(6), max_tokens=9)
        driver.run_until_idle()
    codes = {driver.finish(f"{number}").code for number in range(100)}
    assert codes <= {ErrorCode.DECODE_FAILED, None}
    assert calls >= 100
    assert checks == []


def poisoned(original: Callable[..., int]) -> Callable[..., int]:
    """As a prompt that asks for a buffer which no device has."""

    @functools.wraps(original)
    def launch_chunk(model: Any, row: Row, chunk_tokens: int) -> int:
        if row.key.id.startswith("poison"):
            raise RuntimeError("[metal::malloc] Attempting to allocate 99999999999 bytes")
        return original(model, row, chunk_tokens)

    return launch_chunk


def test_a_request_that_always_fails_ends_nobody(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    """However often its client tries again, with nothing else to do: the device is asked, and is well."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    monkeypatch.setattr(prefill, "launch_chunk", poisoned(prefill.launch_chunk))
    for number in range(10):
        driver.submit(f"poison {number}", prompt_of(LONG))
        driver.run_until_idle()
        assert driver.finish(f"poison {number}").code == ErrorCode.PREFILL_FAILED
    assert checks == ["asked"] * (10 // FAULTS_BEFORE_DOUBT)
    driver.submit("good", prompt_of(LONG), max_tokens=6)
    driver.run_until_idle()
    assert driver.tokens("good") == solo_tokens(tiny_model("llama"), prompt_of(LONG), 6)


def test_a_device_that_recovers_is_not_lost(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    """It fails as often as it takes to be doubted, and is well when it is asked: the engine serves on."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    original = prefill.launch_chunk
    failures = 0

    def ill_for_a_while(model: Any, row: Row, chunk_tokens: int) -> int:
        nonlocal failures
        if failures < FAULTS_BEFORE_DOUBT:
            failures += 1
            raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory")
        return original(model, row, chunk_tokens)

    monkeypatch.setattr(prefill, "launch_chunk", ill_for_a_while)
    ids = submit_long(driver, FAULTS_BEFORE_DOUBT + 1)
    driver.run_until_idle()
    assert [driver.finish(id_).code for id_ in ids[:-1]] == [ErrorCode.PREFILL_FAILED] * FAULTS_BEFORE_DOUBT
    assert checks == ["asked"]
    assert driver.tokens(ids[-1]) == solo_tokens(tiny_model("llama"), prompt_of(LONG, FAULTS_BEFORE_DOUBT), 4)


def test_a_check_counts_as_a_turn_for_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may hang in it, too."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    ages: list[bool] = []
    monkeypatch.setattr(prefill, "launch_chunk", poisoned(prefill.launch_chunk))
    monkeypatch.setattr(prefill, "forward_one", lambda _model: ages.append(driver.board._turn_began_s is not None))
    for number in range(FAULTS_BEFORE_DOUBT):
        driver.submit(f"poison {number}", prompt_of(LONG))
    driver.run_until_idle()
    driver.turn()
    assert ages == [True]
    assert driver.board.turn_age_s == 0.0
