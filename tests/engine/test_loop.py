"""The schedule: who joins when, what runs between two steps, how the loop stops."""

import itertools
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache

from engine import prefill
from engine.cache.full import FullBatch
from engine.cache.layout import Layout
from engine.loop import IDLE_WAIT_MS
from engine.memory import CLEAR_EVERY_STEPS
from protocol.errors import ErrorCode
from protocol.messages import SubmitId
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


def test_queued_short_requests_join_before_the_first_step(driver: LoopDriver, events: list[str]) -> None:
    """B1: with nothing decoding, three short requests prefill as one chunk and all join one step."""
    for index in range(3):
        driver.submit(str(index), prompt_of(5 + index, index))
    driver.turn()
    assert events == ["launch_together", "launch_forward", "launch_sample"]
    assert len(driver.loop._batch) == 3


def test_first_token_of_a_lone_row_is_told_before_later_ones_prefill(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that comes alone gets its token 0 at once; those that arrive meanwhile do not hold it back."""
    told_at_chunk: list[int] = []
    alone, together = prefill.launch_chunk, prefill.launch_together

    def followed(*arguments: Any) -> int:
        told_at_chunk.append(len(driver.deltas))
        for index in range(1, 3):
            driver.submit(str(index), prompt_of(6, index))
        return alone(*arguments)

    def recording(*arguments: Any) -> Any:
        told_at_chunk.append(len(driver.deltas))
        return together(*arguments)

    monkeypatch.setattr(prefill, "launch_chunk", followed)
    monkeypatch.setattr(prefill, "launch_together", recording)
    driver.submit("0", prompt_of(6))
    driver.turn()
    assert told_at_chunk == [0, 1]


def test_running_rows_emit_between_two_chunks_of_a_joiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """B2: beside decoding rows, a prompt ten chunks long lets every row emit between any two chunks."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    for id_ in ("a", "b"):
        driver.submit(id_, prompt_of(5), max_tokens=200)
    driver.turn(3)
    told: list[tuple[int, int]] = []
    original = prefill.launch_chunk

    def recording(*arguments: Any) -> int:
        told.append((len(driver.tokens("a")), len(driver.tokens("b"))))
        return original(*arguments)

    monkeypatch.setattr(prefill, "launch_chunk", recording)
    driver.submit("long", prompt_of(160), max_tokens=4)
    driver.turn(12)
    assert len(told) == 10
    assert all(after[0] > before[0] and after[1] > before[1] for before, after in itertools.pairwise(told))
    driver.run_until_idle()
    assert driver.tokens("long") == solo_tokens(tiny_model("llama"), prompt_of(160), 4)


def test_a_ready_row_does_not_wait_for_a_long_prefill() -> None:
    """With nothing decoding, a row that is through its prefill decodes beside the chunks of a long one."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    driver.submit("short", prompt_of(5), max_tokens=100)
    driver.submit("long", prompt_of(160), max_tokens=4)
    driver.turn(4)
    assert len(driver.tokens("short")) >= 3
    assert driver.tokens("long") == []


def test_a_joiner_beside_running_rows_rides_in_the_next_step(events: list[str]) -> None:
    """Beside running rows the last prompt token is forwarded by the step that follows, not alone."""
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("running", prompt_of(5), max_tokens=30)
    driver.turn(2)
    events.clear()
    driver.submit("joiner", prompt_of(10, 1), max_tokens=12)
    driver.submit("one", prompt_of(10, 2), max_tokens=1)
    driver.turn()
    assert events == ["launch_together", "read", "launch_forward", "launch_sample"]
    driver.run_until_idle()
    assert driver.tokens("joiner") == solo_tokens(tiny_model("llama"), prompt_of(10, 1), 12)
    assert driver.tokens("one") == solo_tokens(tiny_model("llama"), prompt_of(10, 2), 1)


def test_a_step_is_told_while_the_chunk_after_it_runs(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of a running row leave before the wait for a joiner's chunk, which the device works on meanwhile."""
    driver.submit("running", prompt_of(5), max_tokens=30)
    driver.turn(3)
    before = len(driver.tokens("running"))
    told: list[int] = []
    original = prefill.wait_for_chunk

    def recording(caches: Any) -> None:
        told.append(len(driver.tokens("running")))
        original(caches)

    monkeypatch.setattr(prefill, "wait_for_chunk", recording)
    driver.submit("joiner", prompt_of(10, 1))
    driver.turn()
    assert told == [before + 1]


def test_a_burst_is_bounded_by_the_gap_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that keep arriving join a burst from idle only up to the gap budget: then those that are ready step."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    original = prefill.launch_chunk
    started: list[str] = []

    def arriving(model: Any, row: Any, chunk_tokens: int) -> int:
        started.append(row.key.id)
        driver.submit(str(len(started)), prompt_of(8, len(started)))
        return original(model, row, chunk_tokens)

    monkeypatch.setattr(prefill, "launch_chunk", arriving)
    driver.submit("0", prompt_of(8))
    driver.turn()
    assert started == ["0", "1"]
    assert len(driver.loop._batch) == 2


def test_a_long_prefill_is_seen_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing decoding, one turn holds a whole prefill: the status is published between its chunks."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    monkeypatch.setattr("engine.report.PUBLISH_EVERY_S", 0.0)
    seen: list[int] = []
    original = prefill.launch_chunk

    def recording(*arguments: Any) -> int:
        seen.append(driver.board.status().rows.prefilling)
        return original(*arguments)

    monkeypatch.setattr(prefill, "launch_chunk", recording)
    driver.submit("long", prompt_of(64), max_tokens=3)
    driver.turn()
    assert seen == [0, 1, 1, 1]


def test_cap_holds_and_admission_is_first_in_first_out() -> None:
    """B3: with a cap of two and five requests, never more than two are live, and they start in order."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=2))
    for index in range(5):
        driver.submit(str(index), prompt_of(4 + index), max_tokens=5 + index)
    order: list[str] = []
    driver.turn()
    while driver.live_ids():
        assert driver.loop._prefilling.live_rows + len(driver.loop._batch) <= 2
        order += [row.key.id for row in driver.loop._batch if row.key.id not in order]
        driver.turn()
    assert order == ["0", "1", "2", "3", "4"]
    assert [driver.finish(id_).reason for id_ in order] == ["length"] * 5


def test_first_row_keeps_its_cache_objects(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: a row that joins an empty batch hands its caches over by pointer."""
    prefilled: list[Any] = []
    original = prefill.first_token

    def recording(model: Any, row: Any, masks: Any) -> int:
        prefilled.extend(row.caches)
        return original(model, row, masks)

    monkeypatch.setattr(prefill, "first_token", recording)
    driver.submit("a", prompt_of(5))
    driver.turn()
    (group,) = driver.loop._batch.groups
    assert all(ours is theirs for ours, theirs in zip(group.caches, prefilled, strict=True))


def test_unpadded_rows_build_no_mask(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """B8: rows of one length never build a mask array; a shorter row makes one needed."""
    built: list[int] = []
    original = Layout._built_mask

    def recording(layout: Layout, tokens: int, window_size: int | None) -> Any:
        built.append(layout.width)
        return original(layout, tokens, window_size)

    monkeypatch.setattr(Layout, "_built_mask", recording)
    for index in range(3):
        driver.submit(str(index), prompt_of(9, index))
    driver.turn(5)
    assert built == []
    driver.submit("shorter", prompt_of(4))
    driver.turn(2)
    assert len(built) == 2


def test_forward_is_launched_before_the_last_step_is_read(driver: LoopDriver, events: list[str]) -> None:
    """B9: forward n, its sample, then the read of n-1, and nothing else waits for the device."""
    for index in range(2):
        driver.submit(str(index), prompt_of(5 + index, index), max_tokens=100)
    driver.turn(2)
    events.clear()
    driver.turn(3)
    assert events == ["launch_forward", "launch_sample", "read"] * 3


def test_no_placeholder_leaves_the_engine(driver: LoopDriver) -> None:
    """B10: a row that reaches max_tokens among others ends with exactly its own tokens."""
    for index in range(4):
        driver.submit(str(index), prompt_of(6, index), max_tokens=1 + 3 * index if index else 1)
    driver.run_until_idle()
    for index in range(4):
        count = 1 + 3 * index if index else 1
        assert driver.tokens(str(index)) == solo_tokens(tiny_model("llama"), prompt_of(6, index), count)
        assert driver.finish(str(index)).usage.completion_tokens == count


def test_last_row_of_a_group_costs_no_extra_forward(driver: LoopDriver, events: list[str]) -> None:
    """A step whose every sample would be thrown away is not launched."""
    driver.submit("a", prompt_of(5), max_tokens=4)
    driver.run_until_idle()
    assert events.count("launch_forward") == 3
    assert len(driver.tokens("a")) == 4


@pytest.mark.parametrize("max_rows", [1, 32])
def test_lone_row_is_a_single_stream(max_rows: int, events: list[str]) -> None:
    """B11: alone, at cap 1 or 32: the same tokens, solo caches, no layout, the same device calls."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=max_rows))
    driver.submit("a", prompt_of(12), max_tokens=20)
    driver.turn(3)
    (group,) = driver.loop._batch.groups
    assert {type(cache) for cache in group.caches} == {KVCache}
    assert group.layout.pads == [0]
    driver.run_until_idle()
    assert driver.tokens("a") == solo_tokens(tiny_model("llama"), prompt_of(12), 20)
    assert events == (
        ["launch_chunk", "first_token", "launch_forward", "launch_sample"]
        + ["launch_forward", "launch_sample", "read"] * 18
        + ["read"]
    )


def test_row_whose_neighbours_left_is_a_single_stream_again(driver: LoopDriver) -> None:
    """B11: the last row left goes back to solo caches and its tokens stay its own."""
    driver.submit("stays", prompt_of(12), max_tokens=40)
    driver.submit("leaves", prompt_of(30), max_tokens=5)
    driver.turn(3)
    (group,) = driver.loop._batch.groups
    assert {type(cache) for cache in group.caches} == {FullBatch}
    driver.turn(4)
    (group,) = driver.loop._batch.groups
    assert {type(cache) for cache in group.caches} == {KVCache}
    assert group.layout.pads == [0]
    driver.run_until_idle()
    assert driver.tokens("stays") == solo_tokens(tiny_model("llama"), prompt_of(12), 40)


def test_allocator_is_cleared_on_a_cadence_and_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: free buffers are cleared each 256 steps and between the chunks of a prompt, never per step."""
    cleared: list[int] = []
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=16)
    monkeypatch.setattr("engine.memory.mx.clear_cache", lambda: cleared.append(driver.loop._pulse.steps))
    driver.submit("a", prompt_of(40), max_tokens=600)
    driver.run_until_idle()
    assert len(driver.tokens("a")) == 600
    assert cleared == [0, 0, CLEAR_EVERY_STEPS - 1 + 1, 2 * CLEAR_EVERY_STEPS]


def test_an_idle_loop_waits_for_mail_and_asks_nothing_of_the_device(driver: LoopDriver, events: list[str]) -> None:
    """B12: without rows a turn is one wait on the socket; with rows it does not wait at all."""
    driver.turn(3)
    assert (driver.mailbox.waits_ms, events) == ([IDLE_WAIT_MS] * 3, [])
    driver.submit("a", prompt_of(5), max_tokens=5)
    driver.turn(2)
    assert driver.mailbox.waits_ms[3] == IDLE_WAIT_MS
    assert set(driver.mailbox.waits_ms[4:]) == {0}


def test_a_model_that_cannot_batch_is_served_one_row_at_a_time() -> None:
    """Sliding-window layers join no batch yet: the same loop with a cap of one gives each row its solo text."""
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=4,
        rms_norm_eps=1e-5,
        vocab_size=300,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=8,
    )
    mx.random.seed(3)
    model = llama.Model(arguments)
    mx.eval(model.parameters())
    driver = LoopDriver(model, facts_of(model, max_rows=1))
    for index in range(3):
        driver.submit(str(index), prompt_of(12, index), max_tokens=15)
    driver.turn(4)
    assert len(driver.loop._batch) == 1
    driver.run_until_idle()
    expected = [solo_tokens(model, prompt_of(12, index), 15) for index in range(3)]
    assert [driver.tokens(str(index)) for index in range(3)] == expected


def test_sixteen_rows_keep_their_own_words(driver: LoopDriver) -> None:
    """B14 by tokens: sixteen different prompts together give sixteen solo texts."""
    for index in range(16):
        driver.submit(str(index), prompt_of(4 + index % 7, index), max_tokens=12)
    driver.run_until_idle()
    expected = [solo_tokens(tiny_model("llama"), prompt_of(4 + index % 7, index), 12) for index in range(16)]
    assert [driver.tokens(str(index)) for index in range(16)] == expected
    assert len({tuple(tokens) for tokens in expected}) == 16


def test_stop_lets_rows_finish_and_takes_no_new_ones(driver: LoopDriver) -> None:
    """F5: once stopped the loop finishes live rows, rejects new ones, says goodbye and returns."""
    driver.submit("running", prompt_of(5), max_tokens=10)
    driver.turn(2)
    driver.stop.set()
    driver.submit("new", prompt_of(5))
    driver.loop.run()
    assert driver.mailbox.rejected[SubmitId("new")].code == ErrorCode.SHUTTING_DOWN
    assert len(driver.tokens("running")) == 10
    assert driver.mailbox.goodbyes == 1
    assert driver.board.status().phase == "draining"


def test_grace_time_over_ends_the_rest() -> None:
    """F5: rows that outlive the grace time end with an error that says why."""
    driver = LoopDriver(tiny_model("llama"), grace_s=0.0)
    driver.submit("long", prompt_of(5), max_tokens=4_000)
    driver.turn(2)
    driver.stop.set()
    driver.loop.run()
    assert driver.finish("long").code == ErrorCode.SHUTTING_DOWN


def test_grace_time_ends_a_prefill_between_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: a lone prompt of a hundred chunks ends with the grace time, not with its last chunk."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=4, grace_s=0.0)
    chunks: list[int] = []
    original = prefill.launch_chunk

    def stopping(*arguments: Any) -> int:
        chunks.append(len(chunks))
        driver.stop.set()
        return original(*arguments)

    monkeypatch.setattr(prefill, "launch_chunk", stopping)
    driver.submit("long", prompt_of(400))
    driver.loop.run()
    assert (driver.finish("long").code, len(chunks)) == (ErrorCode.SHUTTING_DOWN, 1)


def test_status_counts_rows_and_tokens(driver: LoopDriver) -> None:
    """The published snapshot tells rows by state, tokens, KV bytes and every ending."""
    driver.submit("a", prompt_of(5), max_tokens=5)
    driver.submit("b", prompt_of(6), max_tokens=50)
    driver.submit("c", [])
    driver.turn(3)
    driver.loop._publish()
    status = driver.board.status()
    assert (status.rows.waiting, status.rows.prefilling, status.rows.decoding) == (0, 0, 2)
    assert status.tokens.prompt_total == 11
    assert status.memory.kv_bytes > 0
    driver.cancel("b")
    driver.run_until_idle()
    status = driver.board.status()
    counters = status.counters
    assert (counters.submitted, counters.finished, counters.cancelled, counters.rejected) == (3, 1, 1, 1)
    assert (status.rows.decoding, status.memory.kv_bytes) == (0, 0)
