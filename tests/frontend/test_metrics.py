"""What a frontend counts of rows and requests."""

import asyncio

import pytest

from frontend.metrics import HttpKey, Metrics
from frontend.stream import RowMailbox
from protocol.codec import pack_ids
from protocol.messages import Finish, FinishReason, RowDelta, Submit, SubmitId, Timings, TokenPrompt, Usage
from protocol.status import Histogram

ID = SubmitId("a")


def mailbox() -> RowMailbox:
    submit = Submit(epoch="e", id=ID, group="g", model="m", prompt=TokenPrompt(ids=pack_ids([1])))
    return RowMailbox(submit, asyncio.Event())


def gained(count: int) -> RowDelta:
    return RowDelta(id=ID, tokens=pack_ids([7] * count))


def ended(reason: FinishReason, tokens: int = 5) -> RowDelta:
    usage = Usage(prompt_tokens=12, completion_tokens=tokens)
    timings = Timings(queue_ms=100.0, prefill_ms=200.0, decode_ms=800.0)
    return RowDelta(id=ID, finish=Finish(reason=reason, usage=usage, timings=timings))


def told(histogram: Histogram) -> tuple[int, float]:
    """How many values, and their sum."""
    return sum(histogram.counts), round(histogram.sum, 9)


def test_time_between_tokens_is_each_rows_own() -> None:
    """The first token has none; several at once share theirs; two rows do not mix."""
    metrics, one, other = Metrics(), mailbox(), mailbox()
    metrics.hear(gained(1), one, 10.0)
    metrics.hear(gained(1), other, 10.5)
    metrics.hear(gained(1), one, 11.0)
    metrics.hear(gained(4), one, 13.0)
    assert told(metrics.between_tokens_s.snapshot()) == (5, 3.0)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("cancelled", "abort"),
        ("deadline", "abort"),
        ("lease_lost", "abort"),
        ("error", "error"),
    ],
)
def test_a_rows_end_is_counted_by_its_reason(reason: FinishReason, word: str) -> None:
    """Also when its reply is done with it already, as after a stop string."""
    metrics = Metrics()
    metrics.hear(ended(reason), None, 1.0)
    assert {name: count for name, count in metrics.endings.items() if count} == {word: 1}
    assert told(metrics.queue_s.snapshot()) == (1, 0.1)
    assert told(metrics.prefill_s.snapshot()) == (1, 0.2)
    assert told(metrics.decode_s.snapshot()) == (1, 0.8)
    assert told(metrics.per_token_s.snapshot()) == (1, 0.2)
    assert told(metrics.prompt_tokens.snapshot()) == (1, 12.0)
    assert told(metrics.generated_tokens.snapshot()) == (1, 5.0)


def test_a_row_without_a_token_has_no_decode_time() -> None:
    """Cancelled in the queue: it has waited, and done nothing else; one of a single token has no time per token."""
    metrics = Metrics()
    metrics.hear(ended("cancelled", tokens=0), None, 1.0)
    assert (told(metrics.queue_s.snapshot())[0], told(metrics.decode_s.snapshot())[0]) == (1, 0)
    metrics.hear(ended("length", tokens=1), None, 1.0)
    assert (told(metrics.decode_s.snapshot())[0], told(metrics.per_token_s.snapshot())[0]) == (1, 0)


def test_rows_of_a_lost_engine_are_errors() -> None:
    """Nobody else tells of them."""
    metrics = Metrics()
    metrics.rows_lost(3)
    assert metrics.endings["error"] == 3


def test_requests_are_counted_by_route_and_status() -> None:
    """Only those with a token have times."""
    metrics = Metrics()
    metrics.request_done(HttpKey("/a", 200), 10.0, 10.5, 12.0)
    metrics.request_done(HttpKey("/a", 400), 10.0, None, 10.1)
    metrics.request_done(HttpKey("/a", 200), 20.0, 21.0, 22.0)
    assert dict(metrics.http) == {HttpKey("/a", 200): 2, HttpKey("/a", 400): 1}
    assert told(metrics.first_token_s.snapshot()) == (2, 1.5)
    assert told(metrics.request_s.snapshot()) == (2, 4.0)
