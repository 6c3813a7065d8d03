"""The row mailbox: merging, latching, bounds."""

import asyncio

from frontend.stream import MAX_PENDING_TOKENS, RowFailure, RowMailbox, RowNews
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import Finish, RowDelta, Submit, SubmitId, TokenPrompt, Usage

FINISH = Finish(reason="length", usage=Usage(prompt_tokens=1, completion_tokens=3))
FAILURE = RowFailure(code=ErrorCode.NOT_READY, message="gone")


def make_mailbox(bell: asyncio.Event) -> RowMailbox:
    submit = Submit(epoch="e", id=SubmitId("a/0"), group="a", model="m", prompt=TokenPrompt(ids=pack_ids([1])))
    return RowMailbox(submit, bell)


def delta(ids: list[int], finish: Finish | None = None) -> RowDelta:
    return RowDelta(id=SubmitId("a/0"), tokens=pack_ids(ids), finish=finish)


def test_deltas_merge_into_one_slot() -> None:
    """Several deltas between two takes come out as one, in order, with the end."""
    bell = asyncio.Event()
    mailbox = make_mailbox(bell)
    mailbox.put_delta(delta([1, 2]))
    mailbox.put_delta(delta([3], FINISH))
    assert not bell.is_set()
    mailbox.ring()
    assert bell.is_set()
    assert mailbox.take() == RowNews([1, 2, 3], FINISH)
    assert mailbox.take() is None
    assert mailbox.delivered_ids.tolist() == [1, 2, 3]


def test_nothing_new_is_none() -> None:
    """A take without news tells nothing."""
    assert make_mailbox(asyncio.Event()).take() is None


def test_first_end_wins() -> None:
    """A failure after the finish does not replace it, and tokens after an end are dropped."""
    mailbox = make_mailbox(asyncio.Event())
    mailbox.put_delta(delta([1], FINISH))
    mailbox.put_failure(FAILURE)
    mailbox.put_delta(delta([2]))
    assert mailbox.take() == RowNews([1], FINISH)
    assert mailbox.take() is None


def test_failure_keeps_tokens_before_it() -> None:
    """Tokens that came before a loss are still delivered, with the loss as the end."""
    mailbox = make_mailbox(asyncio.Event())
    mailbox.put_delta(delta([1]))
    mailbox.put_failure(FAILURE)
    assert mailbox.take() == RowNews([1], FAILURE)


def test_overfull_past_the_bound() -> None:
    """Exactly the bound is still fine; one token more is not."""
    mailbox = make_mailbox(asyncio.Event())
    mailbox.put_delta(delta([0] * MAX_PENDING_TOKENS))
    assert not mailbox.is_overfull
    mailbox.put_delta(delta([0]))
    assert mailbox.is_overfull
