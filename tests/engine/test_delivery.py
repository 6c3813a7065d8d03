"""What cannot be told costs the row that it is of, or its client; nobody else misses a token, and the loop goes on."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import outbox
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages import LogprobsWanted, RowDelta, Step
from tests.fakes.loop_driver import CLIENT, FakeMailbox, LoopDriver
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

OTHER = b"other"
# Each has a prompt of its own.
IDS = ["a", "b", "c", "d"]


class Unsendable(NamedTuple):
    """Which deltas cannot be told: of this row, and in the n-th Step that has one, or from it on."""

    id: str
    at: int
    lasting: bool


def lose(driver: LoopDriver, patched: pytest.MonkeyPatch, is_lost: Callable[[RowDelta], bool]) -> None:
    """From now on a Step with such a delta raises before it leaves, as one that cannot be packed."""
    original = FakeMailbox.tell_step

    def tell_step(mailbox: FakeMailbox, client: bytes, step: Step) -> None:
        lost = [delta.id for delta in step.rows if is_lost(delta)]
        if lost:
            raise TypeError("Encoding objects of type array is unsupported")
        original(mailbox, client, step)

    patched.setattr(FakeMailbox, "tell_step", tell_step)


def start(driver: LoopDriver) -> None:
    """Three rows of one client, one of another, in one batch."""
    for number, id_ in enumerate(IDS):
        client = OTHER if id_ == "d" else CLIENT
        driver.submit(id_, prompt_of(5 + number, number), client=client, max_tokens=6)


def expected_of(id_: str) -> list[int]:
    """What the row says undisturbed."""
    number = IDS.index(id_)
    return solo_tokens(tiny_model("llama"), prompt_of(5 + number, number), 6)


def test_a_row_whose_token_cannot_be_told_ends_alone(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours in the same Step miss nothing and hear nothing twice."""
    lose(driver, monkeypatch, lambda delta: delta.id == "b" and delta.finish is None and bool(driver.tokens("b")))
    start(driver)
    driver.run_until_idle()
    finish = driver.finish("b")
    assert (finish.reason, finish.code) == ("error", ErrorCode.INTERNAL)
    assert "Encoding objects" in finish.message
    assert finish.usage.prompt_tokens == 6
    assert driver.tokens("b") == expected_of("b")[:1]
    assert [driver.tokens(id_) for id_ in "acd"] == [expected_of(id_) for id_ in "acd"]
    assert driver.mailbox.ended_leases == []


def test_a_token_that_is_no_id_ends_its_row(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing it fails before any Step is made."""
    original = outbox.Outbox.add_token
    monkeypatch.setattr(
        outbox.Outbox,
        "add_token",
        lambda self, row, token, logprobs: original(self, row, -1 if row.key.id == "b" else token, logprobs),
    )
    start(driver)
    driver.run_until_idle()
    assert driver.finish("b").code == ErrorCode.INTERNAL
    assert [driver.tokens(id_) for id_ in "acd"] == [expected_of(id_) for id_ in "acd"]


def test_a_row_whose_last_word_cannot_be_told_is_told_so(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended well, but its client would wait for ever."""
    lose(driver, monkeypatch, lambda delta: delta.finish is not None and delta.finish.reason == "length")
    start(driver)
    driver.run_until_idle()
    assert [driver.finish(id_).code for id_ in IDS] == [ErrorCode.INTERNAL] * 4
    assert [driver.tokens(id_) for id_ in IDS] == [expected_of(id_)[:5] for id_ in IDS]


def test_a_client_that_cannot_even_be_told_of_an_end_is_lost(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other rows end with it; other clients' rows go on."""
    lose(driver, monkeypatch, lambda delta: delta.id == "b")
    start(driver)
    driver.run_until_idle()
    assert driver.mailbox.ended_leases == [CLIENT]
    assert [driver.finish(id_).reason for id_ in "ac"] == ["lease_lost"] * 2
    assert driver.tokens("d") == expected_of("d")


def test_a_step_that_no_frame_holds_is_told_in_parts(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row alone fits: all get all of it."""
    driver.submit("alone", prompt_of(9))
    driver.run_until_idle()
    largest = max(len(codec.encode(message)) for _, message in driver.mailbox.sent)
    start(driver)
    driver.turn()
    # A Step of three rows is larger than any of one.
    monkeypatch.setattr(codec, "MAX_FRAME_BYTES", largest)
    driver.run_until_idle()
    assert [driver.tokens(id_) for id_ in IDS] == [expected_of(id_) for id_ in IDS]
    assert [driver.finish(id_).reason for id_ in IDS] == ["length"] * 4


def test_a_row_without_its_prompts_log_probabilities_is_not_told_as_whole(
    driver: LoopDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go ahead of everything else; once a piece is lost nothing follows but the error, once."""
    monkeypatch.setattr(outbox, "MAX_PROMPT_LOGPROBS", 4)
    pieces: list[RowDelta] = []

    def is_second_piece(delta: RowDelta) -> bool:
        pieces.extend([delta] if delta.prompt_logprobs is not None else [])
        return delta.prompt_logprobs is not None and len(pieces) == 2

    lose(driver, monkeypatch, is_second_piece)
    driver.submit("a", prompt_of(20), max_tokens=1, logprobs=LogprobsWanted(of_prompt=True))
    driver.submit("b", prompt_of(6, 1), max_tokens=6)
    driver.run_until_idle()
    assert (driver.finish("a").code, driver.tokens("a")) == (ErrorCode.INTERNAL, [])
    assert len(pieces) == 2
    assert driver.tokens("b") == expected_of("b")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(Unsendable, st.sampled_from(IDS), st.integers(1, 7), st.booleans()), max_size=3))
def test_every_row_ends_once_or_loses_its_client(faults: list[Unsendable]) -> None:
    """Whatever cannot be told, and when: nobody waits for ever, and what was told is the beginning of the truth."""
    driver = LoopDriver(tiny_model("llama"))
    seen = dict.fromkeys(IDS, 0)

    def is_lost(delta: RowDelta) -> bool:
        seen[delta.id] += 1
        return any(
            fault.id == delta.id and (seen[delta.id] == fault.at or (fault.lasting and seen[delta.id] > fault.at))
            for fault in faults
        )

    with pytest.MonkeyPatch.context() as patched:
        lose(driver, patched, is_lost)
        start(driver)
        driver.run_until_idle()
        # A loss is heard in the turn after it.
        driver.turn()
    for id_ in IDS:
        ends = [delta.finish for delta in driver.deltas if delta.id == id_ and delta.finish]
        client = OTHER if id_ == "d" else CLIENT
        assert len(ends) == 1 or (ends == [] and client in driver.mailbox.ended_leases)
        told = driver.tokens(id_)
        assert told == expected_of(id_)[: len(told)]
        if ends and ends[0].reason == "length":
            assert told == expected_of(id_)
    assert driver.live_ids() == []
