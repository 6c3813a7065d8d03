"""How rows end: by their tokens, by their client, by a fault; each exactly once."""

from typing import Any

import pytest

from engine import decode, prefill
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from tests.fakes.loop_driver import CLIENT, LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


def test_eos_ends_a_row_undelivered() -> None:
    """A3: an EOS is not delivered, counts once in usage, and ends its row alone."""
    tokens = solo_tokens(tiny_model("llama"), prompt_of(8), 10)
    eos = tokens[6]
    first = tokens.index(eos)
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(eos,)))
    driver.submit("ends", prompt_of(8), max_tokens=20)
    driver.submit("goes on", prompt_of(8), max_tokens=20, ignore_eos=True)
    driver.run_until_idle()
    finish = driver.finish("ends")
    assert driver.tokens("ends") == tokens[:first]
    assert (finish.reason, finish.stop_id, finish.usage.completion_tokens) == ("stop", eos, first + 1)
    assert len(driver.tokens("goes on")) == 20


def test_eos_on_exactly_the_last_token_is_a_stop() -> None:
    """A3: when the last allowed token is EOS the row was stopped, not cut."""
    tokens = solo_tokens(tiny_model("llama"), prompt_of(8), 10)
    first = tokens.index(tokens[6])
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(tokens[6],)))
    driver.submit("a", prompt_of(8), max_tokens=first + 1)
    driver.run_until_idle()
    assert driver.finish("a").reason == "stop"


def test_eos_at_the_first_token_never_joins(events: list[str]) -> None:
    """A row that ends at token 0 is never part of a batch."""
    eos = solo_tokens(tiny_model("llama"), prompt_of(8), 1)[0]
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(eos,)))
    driver.submit("a", prompt_of(8))
    driver.run_until_idle()
    assert "launch_forward" not in events
    assert (driver.tokens("a"), driver.finish("a").reason) == ([], "stop")


def test_min_tokens_holds_stops_back() -> None:
    """Below min_tokens neither EOS nor a stop token can be drawn; the rest of the batch is untouched."""
    tokens = solo_tokens(tiny_model("llama"), prompt_of(8), 20)
    eos = tokens[2]
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(eos,)))
    driver.submit("held", prompt_of(8), max_tokens=12, min_tokens=10)
    driver.submit("free", prompt_of(8), max_tokens=12, ignore_eos=True)
    driver.run_until_idle()
    assert len(driver.tokens("held")) >= 10
    assert eos not in driver.tokens("held")[:10]
    assert driver.tokens("free") == tokens[:12]


def test_max_tokens_is_clamped_to_the_context() -> None:
    """A6: without max_tokens, or with too many, a row runs to the context's end."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), context_length=40))
    driver.submit("open", prompt_of(10), max_tokens=None)
    driver.submit("too many", prompt_of(30), max_tokens=500)
    driver.run_until_idle()
    assert [len(driver.tokens(id_)) for id_ in ("open", "too many")] == [30, 10]
    assert driver.finish("open").reason == "length"


@pytest.mark.parametrize("turns", [0, 1, 6])
def test_a_cancelled_row_is_gone_at_once(turns: int) -> None:
    """A5: queued behind a cap, prefilling or decoding, a cancelled row leaves within one turn; siblings go on."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=3), chunk_tokens=16)
    driver.submit("sibling", prompt_of(5), max_tokens=30)
    driver.turn()
    driver.submit("victim", prompt_of(40), max_tokens=200)
    driver.turn(turns)
    driver.cancel("victim")
    driver.turn()
    assert driver.live_ids() == ["sibling"]
    assert driver.finish("victim").reason == "cancelled"
    driver.run_until_idle()
    assert driver.tokens("sibling") == solo_tokens(tiny_model("llama"), prompt_of(5), 30)


def test_a_queued_row_is_cancelled_without_a_chunk(events: list[str]) -> None:
    """A5: a row cancelled while it waits for a place never reaches the device."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), max_rows=1))
    driver.submit("running", prompt_of(5), max_tokens=20)
    driver.submit("queued", prompt_of(5))
    driver.turn(2)
    driver.cancel("queued")
    driver.run_until_idle()
    assert driver.finish("queued").reason == "cancelled"
    assert events.count("first_token") == 1


def test_a_text_stop_is_a_normal_end(driver: LoopDriver) -> None:
    """A Cancel for a stop string finishes as `stop`; one that comes too late changes nothing."""
    driver.submit("a", prompt_of(5), max_tokens=30)
    driver.turn(4)
    driver.cancel("a", "stop")
    driver.turn()
    driver.cancel("a", "stop")
    driver.turn()
    assert driver.finish("a").reason == "stop"


def test_a_deadline_ends_a_row(driver: LoopDriver) -> None:
    """A row whose deadline passes ends as `deadline`, wherever it is."""
    driver.submit("late", prompt_of(5), max_tokens=2_000, deadline_ms=1)
    driver.submit("fine", prompt_of(5), max_tokens=3)
    driver.run_until_idle()
    assert (driver.finish("late").reason, driver.finish("fine").reason) == ("deadline", "length")


def test_a_lost_client_loses_its_rows_only(driver: LoopDriver) -> None:
    """A7: a client that is gone at a send ends with all its rows; another client's rows go on."""
    driver.submit("mine", prompt_of(5), max_tokens=20)
    driver.submit("theirs", prompt_of(5, 1), client=b"other", max_tokens=20)
    driver.turn(3)
    driver.mailbox.gone.add(b"other")
    driver.turn(2)
    assert driver.live_ids() == ["mine"]
    driver.run_until_idle()
    assert len(driver.tokens("mine")) == 20


def test_two_clients_may_use_one_id(driver: LoopDriver) -> None:
    """Ids are unique per client only."""
    driver.submit("a", prompt_of(5), max_tokens=3)
    driver.submit("a", prompt_of(5, 1), client=b"other", max_tokens=3)
    driver.run_until_idle()
    assert driver.mailbox.rejected == {}
    assert {client for client, _ in driver.mailbox.sent} == {CLIENT, b"other"}


def test_a_prefill_fault_ends_the_joiner_alone(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in one row's prefill ends that row with an error; running rows do not notice."""
    driver.submit("running", prompt_of(5), max_tokens=20)
    driver.turn(2)
    original = prefill.launch_chunk

    def faulty(model: Any, row: Any, chunk_tokens: int) -> int:
        if row.key.id == "bad":
            raise ValueError("broken prompt")
        return original(model, row, chunk_tokens)

    monkeypatch.setattr(prefill, "launch_chunk", faulty)
    driver.submit("bad", prompt_of(9))
    driver.turn()
    driver.submit("good", prompt_of(9), max_tokens=3)
    driver.run_until_idle()
    finish = driver.finish("bad")
    assert (finish.reason, finish.code, finish.message) == (
        "error",
        ErrorCode.PREFILL_FAILED,
        "ValueError: broken prompt",
    )
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(5), 20)
    assert len(driver.tokens("good")) == 3


@pytest.mark.parametrize("part", ["launch_forward", "read"])
def test_a_decode_fault_ends_its_group_and_the_loop_goes_on(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A forward or read that fails ends every running row and drops its caches; later requests run."""
    for id_ in ("a", "b"):
        driver.submit(id_, prompt_of(5), max_tokens=20)
    driver.turn(3)
    with monkeypatch.context() as patched:

        def broken(*_: Any) -> Any:
            raise RuntimeError("device fault")

        patched.setattr(decode, part, broken)
        driver.turn()
    assert [driver.finish(id_).code for id_ in ("a", "b")] == [ErrorCode.DECODE_FAILED] * 2
    assert driver.loop._batch.groups == []
    driver.submit("later", prompt_of(5), max_tokens=20)
    driver.run_until_idle()
    assert driver.tokens("later") == solo_tokens(tiny_model("llama"), prompt_of(5), 20)


def test_a_replayed_row_goes_on_where_it_was(driver: LoopDriver) -> None:
    """Tokens delivered by an earlier attempt are prefilled, not generated again, and count in usage."""
    tokens = solo_tokens(tiny_model("llama"), prompt_of(8), 20)
    driver.submit("a", prompt_of(8), max_tokens=20, generated=pack_ids(tokens[:7]))
    driver.run_until_idle()
    assert driver.tokens("a") == tokens[7:]
    assert driver.finish("a").usage.completion_tokens == 20
    assert driver.finish("a").usage.prompt_tokens == 8


def test_a_replay_that_was_complete_ends_at_once(driver: LoopDriver, events: list[str]) -> None:
    """A replay with every token delivered already needs no forward."""
    driver.submit("a", prompt_of(8), max_tokens=3, generated=pack_ids([5, 6, 7]))
    driver.turn()
    assert (driver.finish("a").reason, events) == ("length", [])
