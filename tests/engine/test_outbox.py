"""What a loop tells while a long prompt is computed."""

import pytest

from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model


def progress_of(driver: LoopDriver, id_: str) -> list[int]:
    """What a row said of its prompt, in order."""
    return [delta.prefilled for delta in driver.deltas if delta.id == id_ and delta.prefilled is not None]


def test_a_long_prompt_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each chunk but the last, when told without a pause; alone, and before its first token."""
    monkeypatch.setattr("engine.prefilling.PROGRESS_EVERY_S", 0.0)
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    driver.submit("short", prompt_of(5, 9), max_tokens=2)
    driver.submit("long", prompt_of(80), max_tokens=3)
    driver.run_until_idle()
    assert progress_of(driver, "long") == [16, 32, 48, 64]
    assert progress_of(driver, "short") == []
    deltas = [delta for delta in driver.deltas if delta.id == "long"]
    assert [delta.prefilled is not None for delta in deltas[:4]] == [True] * 4
    assert [(delta.tokens, delta.finish) for delta in deltas[:4]] == [(b"", None)] * 4
    assert len(driver.tokens("long")) == 3


def test_progress_is_told_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a fast device come by the dozen: the first is told, and the others of that while are not."""
    monkeypatch.setattr("engine.prefilling.PROGRESS_EVERY_S", 60.0)
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    driver.submit("long", prompt_of(80), max_tokens=3)
    driver.run_until_idle()
    assert progress_of(driver, "long") == [16]
