"""The load client times streams however their bytes are cut, and accepts no stream that did not run to its length."""

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.load import (
    LoadError,
    Round,
    StreamClock,
    StreamTiming,
    Workload,
    median_round,
    new_session,
    percentile,
    run_load,
    run_round,
    summarised,
    table,
)
from bench.prompts import prompt_of, raw_prompt_of


def _frame(content: str | None = None, finish_reason: str | None = None, **more: Any) -> bytes:
    delta = {"content": content} if content is not None else {"role": "assistant"}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return b"data: " + json.dumps({"choices": choices} | more).encode() + b"\n\n"


def _usage(tokens: int) -> bytes:
    usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM = _frame() + b": keepalive 1/2\n\n" + _frame("a") + _frame("b") + _frame("", "length") + _usage(2) + DONE


def _round(concurrency: int = 1, **changes: float) -> Round:
    figures: dict[str, Any] = dict.fromkeys(("tokens_per_s", "ttft_p50_ms", "ttft_p95_ms", "largest_gap_ms"), 1.0)
    figures |= {"wall_s": 1.0, "prompt_tokens": 5, "completion_tokens": 2}
    return Round(concurrency=concurrency, **(figures | changes))


def test_a_stream_is_timed_the_same_wherever_it_is_cut() -> None:
    """Two pieces, at every place: first text and usage are found, the last piece has the later clock."""
    first_text = STREAM.index(_frame("a")) + len(_frame("a")) - 2
    second_text = STREAM.index(_frame("b")) + len(_frame("b")) - 2
    for cut in range(1, len(STREAM)):
        clock = StreamClock(10.0)
        clock.feed(STREAM[:cut], 11.0)
        clock.feed(STREAM[cut:], 13.0)
        first_s, second_s = (11.0 if cut > end else 13.0 for end in (first_text, second_text))
        assert clock.timing(14.0, 2) == StreamTiming(10.0, first_s, 14.0, second_s - first_s, 5, 2), cut


def test_the_largest_gap_is_between_frames_with_text() -> None:
    """Role, empty and finish frames are no text."""
    clock = StreamClock(0.0)
    pieces = (_frame(), _frame("a"), _frame("b"), _frame(""), _frame("c"), _frame("", "length") + _usage(3) + DONE)
    for piece, now_s in zip(pieces, (1.0, 2.0, 5.0, 6.0, 7.0, 20.0), strict=True):
        clock.feed(piece, now_s)
    assert clock.timing(20.0, 3) == StreamTiming(0.0, 2.0, 20.0, 3.0, 5, 3)


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (STREAM.replace(b"length", b"stop"), r"\('length', 2\), not \('stop', 2\)"),
        (STREAM.replace(_usage(2), _usage(1)), r"not \('length', 1\)"),
        (STREAM.replace(_usage(2), b""), "without text, usage or"),
        (STREAM.replace(DONE, b""), "without text, usage or"),
        (_frame("", "length") + _usage(2) + DONE, "without text, usage or"),
        (_frame("a") + b'data: {"error": {"message": "no room"}}\n\n', "no room"),
    ],
)
def test_a_stream_that_did_not_run_to_its_length_fails(stream: bytes, complaint: str) -> None:
    """No figure comes from a stream that stopped early, broke off or failed."""
    clock = StreamClock(0.0)
    with pytest.raises(LoadError, match=complaint):
        _fed(clock, stream)


def _fed(clock: StreamClock, stream: bytes) -> StreamTiming:
    clock.feed(stream, 1.0)
    return clock.timing(2.0, 2)


def test_raw_completions_have_their_text_beside_no_delta() -> None:
    """The other endpoint's frames are timed alike, and a raw body has a prompt instead of messages."""
    clock = StreamClock(0.0)
    frame = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}\n\n'
    clock.feed(frame + _usage(1) + DONE, 1.0)
    assert clock.timing(2.0, 1) == StreamTiming(0.0, 1.0, 2.0, 0.0, 5, 1)
    chat, raw = Workload("http://a", "m", 4), Workload("http://a", "m", 4, endpoint="completions")
    assert [chat.address, raw.address] == ["http://a/v1/chat/completions", "http://a/v1/completions"]
    assert json.loads(chat.body(3))["messages"] == [{"role": "user", "content": prompt_of(3)}]
    assert json.loads(raw.body(3))["prompt"] == raw_prompt_of(3)


def test_a_rounds_throughput_is_usage_over_wall_clock() -> None:
    """From the first start to the last end, all streams' tokens together."""
    timings = [StreamTiming(0.0, 0.5, 2.0, 0.25, 5, 10), StreamTiming(0.5, 2.5, 4.0, 0.75, 5, 10)]
    assert summarised(timings) == Round(2, 5.0, 500.0, 2_000.0, 750.0, 4.0, 10, 20)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.25, 1.0), (0.26, 2.0), (0.5, 2.0), (0.95, 4.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_a_value_that_was_seen(share: float, expected: float) -> None:
    """The smallest that covers the share, in any order."""
    for values in itertools.permutations((1.0, 2.0, 3.0, 4.0)):
        assert percentile(values, share) == expected


def test_medians_are_taken_field_by_field() -> None:
    """A slow round does not drag its other figures along."""
    rounds = [_round(tokens_per_s=1, ttft_p50_ms=9), _round(tokens_per_s=5, ttft_p50_ms=7), _round(tokens_per_s=3)]
    assert median_round(rounds) == _round(tokens_per_s=3, ttft_p50_ms=7)


def test_the_table_has_a_line_per_concurrency() -> None:
    """In the order in which they ran, with the number of rounds."""
    lines = table([_round(8), _round(8), _round(1)]).splitlines()
    assert [line.split()[0] for line in lines] == ["C", "8", "1"]
    assert [line.split()[-1] for line in lines[1:]] == ["2", "1"]


def test_bodies_are_fixed_and_differ_between_streams() -> None:
    """The same bytes every time, for every server; ignore_eos only when asked for."""
    workload = Workload("http://a", "m", 4)
    assert workload.body(3) == Workload("http://b", "m", 4).body(3)
    assert b"ignore_eos" not in workload.body(3)
    assert json.loads(Workload("http://a", "m", 4, ignore_eos=True).body(3))["ignore_eos"] is True
    assert len({prompt_of(index) for index in range(64)}) == 64


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers every stream with STREAM; its address and the bodies it got."""
    bodies: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        if bodies[-1]["model"] != "m":
            return web.Response(status=404, text="model_not_found")
        return web.Response(body=STREAM, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app) as started:
        yield str(started.make_url("")).rstrip("/"), bodies


async def test_a_load_has_a_warm_up_round_that_is_not_counted(server: tuple[str, list[dict[str, Any]]]) -> None:
    """Two concurrencies, two rounds each: four figures of six rounds, each stream with its own prompt."""
    url, bodies = server
    rounds = await run_load(Workload(url, "m", 2), [1, 2], 2)
    assert [(a_round.concurrency, a_round.completion_tokens) for a_round in rounds] == [(1, 2), (1, 2), (2, 4), (2, 4)]
    assert len(bodies) == 3 * 1 + 3 * 2
    assert {body["messages"][0]["content"] for body in bodies} == {prompt_of(0), prompt_of(1)}


async def test_a_refused_stream_fails_the_round(server: tuple[str, list[dict[str, Any]]]) -> None:
    """A status other than 200 is told with its text."""
    url, _ = server
    async with new_session() as session:
        with pytest.raises(ExceptionGroup) as failed:
            await run_round(session, Workload(url, "unknown", 2), 1)
    (error,) = failed.value.exceptions
    assert isinstance(error, LoadError)
    assert str(error) == f"{url}/v1/chat/completions answered 404: model_not_found"
