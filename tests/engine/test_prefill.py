"""What a row's prompt may be, down to its least; prompts that share a chunk."""

from typing import Any

import pytest

from engine import prefill
from engine.gap import GAP_CHUNKS
from engine.row import Row
from protocol.errors import ErrorCode
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


@pytest.mark.parametrize("lengths", [(5, 1), (1, 5), (1, 1), (5, 2, 1)])
def test_prompts_of_one_token_join_like_any_other(driver: LoopDriver, lengths: tuple[int, ...]) -> None:
    """A row with nothing to prefill has empty caches, and costs neither itself nor the rows that it joins."""
    for index, length in enumerate(lengths):
        driver.submit(str(index), prompt_of(length, index), max_tokens=6)
    driver.run_until_idle()
    expected = [solo_tokens(tiny_model("llama"), prompt_of(length, index), 6) for index, length in enumerate(lengths)]
    assert [driver.tokens(str(index)) for index in range(len(lengths))] == expected


def test_a_prompt_of_one_token_joins_running_rows(driver: LoopDriver) -> None:
    """Beside rows that decode already, too."""
    driver.submit("running", prompt_of(9), max_tokens=12)
    driver.turn(4)
    driver.submit("joiner", prompt_of(1, 2), max_tokens=6)
    driver.run_until_idle()
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(9), 12)
    assert driver.tokens("joiner") == solo_tokens(tiny_model("llama"), prompt_of(1, 2), 6)


def test_several_short_joiners_share_one_gap(events: list[str]) -> None:
    """Beside running rows, as many whole short prompts as fit the gap budget prefill between two steps."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=10)
    driver.submit("running", prompt_of(5), max_tokens=100)
    driver.turn(2)
    events.clear()
    for index in range(6):
        driver.submit(str(index), prompt_of(11, index + 1))
    driver.turn()
    assert events == ["launch_together", "read", "launch_forward", "launch_sample"]
    assert len(driver.loop._batch) == 1 + (GAP_CHUNKS * 10 - 10 // 4) // 10


def test_joiners_of_one_gap_keep_their_own_words(driver: LoopDriver) -> None:
    """Rows prefilled as one padded chunk beside a running row give their solo tokens, and so does that row."""
    driver.submit("running", prompt_of(9), max_tokens=30)
    driver.turn(3)
    lengths = [6, 11, 2, 11, 8]
    for index, length in enumerate(lengths):
        driver.submit(str(index), prompt_of(length, index + 1), max_tokens=12)
    driver.run_until_idle()
    expected = [solo_tokens(tiny_model("llama"), prompt_of(length, n + 1), 12) for n, length in enumerate(lengths)]
    assert [driver.tokens(str(index)) for index in range(len(lengths))] == expected
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(9), 30)


def test_a_row_cancelled_in_its_shared_chunk_leaves_the_others(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5: gone while its chunk runs, the row never decodes, and its neighbours of that chunk do."""
    original = prefill.wait_for_chunk

    def cancelling(caches: Any) -> None:
        driver.cancel("1")
        original(caches)

    monkeypatch.setattr(prefill, "wait_for_chunk", cancelling)
    for index in range(2):
        driver.submit(str(index), prompt_of(8, index), max_tokens=8)
    driver.run_until_idle()
    assert (driver.finish("1").reason, driver.tokens("1")) == ("cancelled", [])
    assert driver.tokens("0") == solo_tokens(tiny_model("llama"), prompt_of(8), 8)


def test_after_a_fault_in_a_shared_chunk_each_row_is_tried_alone(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joint prefill that raises costs no row: each is computed once more alone, and only the guilty one ends."""
    together, alone = prefill.launch_together, prefill.launch_chunk
    tried: list[list[str]] = []
    driver.submit("running", prompt_of(9), max_tokens=20)
    driver.turn(3)

    def failing(model: Any, kinds: Any, rows: list[Row]) -> Any:
        tried.append([row.key.id for row in rows])
        together(model, kinds, rows)
        raise RuntimeError("no memory")

    def guilty(model: Any, row: Row, chunk_tokens: int) -> int:
        tried.append([row.key.id])
        if row.key.id == "1":
            raise RuntimeError("no memory for this one")
        return alone(model, row, chunk_tokens)

    monkeypatch.setattr(prefill, "launch_together", failing)
    monkeypatch.setattr(prefill, "launch_chunk", guilty)
    for index in range(3):
        driver.submit(str(index), prompt_of(8, index), max_tokens=5)
    driver.run_until_idle()
    assert tried == [["0", "1", "2"], ["0"], ["1"], ["2"]]
    assert driver.finish("1").code == ErrorCode.PREFILL_FAILED
    for index in (0, 2):
        assert driver.tokens(str(index)) == solo_tokens(tiny_model("llama"), prompt_of(8, index), 5)
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(9), 20)


def test_siblings_of_a_shared_chunk_that_failed_share_their_next_one(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tried again is each request: its choices still bring their prompt along."""
    together = prefill.launch_together
    alone: list[str] = []

    def failing(*arguments: Any) -> Any:
        together(*arguments)
        raise RuntimeError("no memory")

    def recording(model: Any, row: Row, chunk_tokens: int) -> int:
        alone.append(row.key.id)
        return original(model, row, chunk_tokens)

    original = prefill.launch_chunk
    monkeypatch.setattr(prefill, "launch_together", failing)
    monkeypatch.setattr(prefill, "launch_chunk", recording)
    for choice in range(2):
        driver.submit(f"a{choice}", prompt_of(9), group="a", choice=choice, max_tokens=4)
    driver.submit("b", prompt_of(8, 1), max_tokens=4)
    driver.run_until_idle()
    assert alone == ["a0", "b"]
    for id_ in ("a0", "a1"):
        assert driver.tokens(id_) == solo_tokens(tiny_model("llama"), prompt_of(9), 4)
