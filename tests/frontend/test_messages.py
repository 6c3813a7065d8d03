"""Anthropic's route over a FakeEngine: replies, errors before and after the 200, cancellations."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import Grammar
from tests.fakes.deadline import until
from tests.fakes.fake_engine import UNCOMPILABLE
from tests.fakes.named_events import StreamedMessage, named_events
from tests.fakes.serving import Served, serving

MESSAGES = "/v1/messages"


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"max_tokens": 100, "messages": [{"role": "user", "content": text}], **fields}


@asynccontextmanager
async def streaming(served: Served, body: dict[str, Any]) -> AsyncIterator[StreamedMessage]:
    """A whole stream."""
    async with await served.post(MESSAGES, {**body, "stream": True}) as response:
        raw = await response.read()
        assert response.status == 200, raw
        assert response.headers["content-type"].startswith("text/event-stream")
        yield StreamedMessage(named_events(raw))


@pytest.mark.parametrize("path", [MESSAGES, "/messages", f"{MESSAGES}?beta=true"])
async def test_a_stream_and_a_whole_reply_are_the_same(runtime_dir: Path, path: str) -> None:
    """Text, end and counts; one Submit each, and no Cancel."""
    async with serving(runtime_dir) as served:
        body = ask("words please", model="fake-model", max_tokens=1_000)
        status, reply = await served.answer(path, body)
        assert (status, reply["type"], reply["role"], reply["model"]) == (200, "message", "assistant", "fake-model")
        async with streaming(served, body) as found:
            assert found.blocks == reply["content"]
            assert found.end == {name: reply[name] for name in ("stop_reason", "stop_sequence", "usage")}
            assert found.events[0]["message"]["usage"]["input_tokens"] == reply["usage"]["input_tokens"]
            assert found.events[0]["message"]["id"].startswith("msg_")
        assert (reply["stop_reason"], len(served.engine.submits())) == ("end_turn", 2)
        assert served.engine.cancels() == []


async def test_system_and_prefill_reach_the_model(runtime_dir: Path) -> None:
    """The prompt is the template's; a last turn of the assistant stays open."""
    async with serving(runtime_dir) as served:
        turns = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "It is ("}]
        await served.answer(MESSAGES, {"max_tokens": 2, "system": "Be brief.", "messages": turns})
        (submit,) = served.engine.submits()
        prompt = served.engine.decoded(submit)
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhich?<|im_end|>\n<|im_start|>assistant\nIt is ("
    )


async def test_a_stop_sequence_is_told(runtime_dir: Path) -> None:
    """Which of them it was; the row is cancelled once."""
    async with serving(runtime_dir, context_length=1_000_000) as served:
        body = ask("!count", stop_sequences=["never", " 12"], max_tokens=900_000)
        status, reply = await served.answer(MESSAGES, body)
        assert (status, reply["stop_reason"], reply["stop_sequence"]) == (200, "stop_sequence", " 12")
        assert reply["content"] == [{"type": "text", "text": " 0 1 2 3 4 5 6 7 8 9 10 11"}]
        async with streaming(served, body) as found:
            assert found.blocks == reply["content"]
            assert found.end["stop_sequence"] == " 12"
        await until(lambda: not served.engine.rows.live(), "the rows leave the engine")
        assert [cancel.reason for cancel in served.engine.cancels()] == ["stop", "stop"]


async def test_max_tokens_and_the_context_are_different_ends(runtime_dir: Path) -> None:
    """A limit that was asked for, a context that was full before it, and none asked for."""
    async with serving(runtime_dir, context_length=120, step_ms=0) as served:
        ends = []
        for fields in ({"max_tokens": 5}, {"max_tokens": 10_000}, {"max_tokens": None}):
            status, reply = await served.answer(MESSAGES, ask("!count", **fields))
            ends.append((status, reply["stop_reason"]))
        assert ends == [(200, "max_tokens"), (200, "model_context_window_exceeded"), (200, "max_tokens")]
        assert reply["usage"]["input_tokens"] + reply["usage"]["output_tokens"] == 120


IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}
BAD_BODIES: list[tuple[bytes | dict[str, Any], int, str, str]] = [
    (b"{", 400, "invalid_request_error", "the request body is not valid JSON"),
    (b"[]", 400, "invalid_request_error", "the request body must be a JSON object, not []"),
    ({}, 400, "invalid_request_error", "messages: is missing or null: it must be an array of at least one message"),
    (ask("x", max_tokens=0), 400, "invalid_request_error", "max_tokens: must be an integer of at least 1, not 0"),
    (ask("x", model="claude-x"), 404, "not_found_error", "model: the model `claude-x` does not exist"),
    (ask("word " * 3_000), 400, "invalid_request_error", "prompt is too long: "),
    (ask("x", output_format={"type": "yaml"}), 400, "invalid_request_error", "output_format.type: must be"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]},
        400,
        "invalid_request_error",
        'messages.0.content.1: is a block of the type "image"',
    ),
]


async def test_bad_input(runtime_dir: Path) -> None:
    """Each gets Anthropic's envelope with its status and type, and no Submit leaves."""
    async with serving(runtime_dir) as served:
        for body, status, kind, message in BAD_BODIES:
            async with await served.post(MESSAGES, body) as response:
                reply = await response.json()
                assert (response.status, reply["type"], reply["error"]["type"]) == (status, "error", kind)
                assert reply["error"]["message"].startswith(message)
                assert reply["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
        assert served.engine.submits() == []


async def test_an_unknown_model_is_told_the_flag(runtime_dir: Path) -> None:
    """Agents send names of their own; `*` takes them."""
    async with serving(runtime_dir) as served:
        _, reply = await served.answer(MESSAGES, ask("x", model="claude-x"))
        assert "--served-model-name '*'" in reply["error"]["message"]
    async with serving(runtime_dir, {"served_model_name": ("*",)}) as served:
        assert (await served.answer(MESSAGES, ask("!echo x", model="claude-x")))[1]["model"] == "claude-x"


async def test_routes_and_methods_are_told_in_the_clients_words(runtime_dir: Path) -> None:
    """405, 413, and on an unknown route 404 for whoever sends Anthropic's version header."""
    async with serving(runtime_dir, {"max_body_bytes": 2_000}) as served:
        async with served.session.get(served.url + MESSAGES) as response:
            reply = await response.json()
            assert (response.status, reply["error"]["type"]) == (405, "invalid_request_error")
            assert response.headers["request-id"] == reply["request_id"]
        status, reply = await served.answer(MESSAGES, ask("x" * 3_000))
        assert (status, reply["error"]["type"]) == (413, "request_too_large")
        headers = {"anthropic-version": "2023-06-01"}
        status, reply = await served.answer("/v1/messages/batches", {}, headers=headers)
        assert (status, reply["error"]["type"]) == (404, "not_found_error")
        status, reply = await served.answer("/v1/messages/batches", {})
        assert (status, reply["error"]["code"]) == (404, "not_found")


async def test_a_key_is_asked_for_in_the_clients_words(runtime_dir: Path) -> None:
    """Where the server wants one: 401, and any of Anthropic's ways to send it."""
    async with serving(runtime_dir, keys=["alpha"]) as served:
        status, reply = await served.answer(MESSAGES, ask("!echo x"), headers={"x-api-key": "beta"})
        assert (status, reply["error"]["type"]) == (401, "authentication_error")
        for headers in ({"x-api-key": "alpha"}, {"authorization": "Bearer alpha"}):
            assert (await served.answer(MESSAGES, ask("!echo x"), headers=headers))[0] == 200


async def test_headers_of_anthropics_clients_are_taken(runtime_dir: Path) -> None:
    """Version, betas and a key change nothing; the request's id comes back under both names, streamed or not."""
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-api-key": "any", "x-request-id": "r-1"}
    async with serving(runtime_dir) as served:
        for is_stream in (False, True):
            async with await served.post(MESSAGES, ask("!echo x", stream=is_stream), headers=headers) as response:
                assert (response.status, response.headers["request-id"]) == (200, "r-1")
                assert "x-convoy-ignored" not in response.headers
                await response.read()


async def test_unknown_fields_are_named(runtime_dir: Path) -> None:
    """In the header, streamed or not."""
    async with serving(runtime_dir) as served:
        for is_stream in (True, False):
            async with await served.post(MESSAGES, ask("!echo x", stream=is_stream, zebra=1)) as response:
                assert (response.status, response.headers["x-convoy-ignored"]) == (200, "zebra")
                await response.read()


async def test_a_failure_before_the_first_event_is_a_status(runtime_dir: Path) -> None:
    """Also for a request that wanted a stream."""
    async with serving(runtime_dir) as served:
        for is_stream in (True, False):
            status, reply = await served.answer(MESSAGES, ask("!fail 0", stream=is_stream))
            assert (status, reply["error"]["type"]) == (500, "api_error")
            assert reply["error"]["details"] == {"error_code": "decode_failed"}


async def test_a_failure_after_the_200_is_an_event(runtime_dir: Path) -> None:
    """A12: text, then one `error`, then the end: no message_delta and no message_stop."""
    async with serving(runtime_dir) as served, streaming(served, ask("!fail 2")) as found:
        assert found.text == " fox fox"
        assert found.types[-1] == "error"
        assert not {"message_delta", "message_stop"} & set(found.types)
        assert found.events[-1]["error"]["message"].startswith("scripted failure")


async def test_deadline(runtime_dir: Path) -> None:
    """Convoy's timeout: 408 before the first event, an `error` after it."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(MESSAGES, ask("!silent", timeout=0.1))
        assert (status, reply["error"]["type"]) == (408, "timeout_error")
        body = ask("!count", timeout=600, max_tokens=None, stream=True)
        async with await served.post(MESSAGES, body) as response:
            head = await response.content.readuntil(b"content_block_delta")
            served.expire()
            found = StreamedMessage(named_events(head + await response.read()))
        assert found.events[-1]["error"]["type"] == "timeout_error"


async def test_a_silence_is_filled_with_pings(runtime_dir: Path) -> None:
    """After message_start, which comes first in any case."""
    async with serving(runtime_dir, {"keepalive_s": 0.05}) as served:
        async with await served.post(MESSAGES, ask("!silent", timeout=600, stream=True)) as response:
            head = [await response.content.readuntil(b"\n\n") for _ in range(3)]
            served.expire()
            found = StreamedMessage(named_events(b"".join(head) + await response.read()))
        assert [event["type"] for event in found.events[:3]] == ["message_start", "ping", "ping"]
        assert found.events[-1]["type"] == "error"
        assert found.types.count("message_start") == 1


async def test_a_full_queue_is_a_rate_limit(runtime_dir: Path) -> None:
    """429 with Retry-After, as Anthropic's clients expect it."""
    async with serving(runtime_dir, max_rows=1, max_waiting=1) as served:
        waiting = [asyncio.create_task(served.post(MESSAGES, ask("!silent")))]
        await until(lambda: served.engine.rows.counts().decoding == 1, "one decodes")
        waiting.append(asyncio.create_task(served.post(MESSAGES, ask("!silent"))))
        await until(lambda: served.engine.rows.counts().waiting == 1, "the queue is full")
        async with await served.post(MESSAGES, ask("x")) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (429, "rate_limit_error")
            assert int(response.headers["retry-after"]) >= 1
        for task in waiting:
            task.cancel()


@pytest.mark.parametrize("is_stream", [True, False])
async def test_client_gone_is_one_cancel(runtime_dir: Path, is_stream: bool) -> None:
    """A5: exactly one Cancel(gone); a sibling does not notice."""
    async with serving(runtime_dir) as served:
        sibling = asyncio.create_task(served.answer(MESSAGES, ask("!silent")))
        leaver = asyncio.create_task(served.post(MESSAGES, ask("!count", stream=is_stream, max_tokens=None)))
        await until(lambda: served.engine.rows.counts().decoding == 2, "both decode")
        if is_stream:
            (await leaver).close()
        else:
            leaver.cancel()
        await until(lambda: len(served.engine.cancels()) == 1, "the Cancel arrives")
        served.wake()
        status, reply = await sibling
        assert (status, reply["usage"]["output_tokens"]) == (200, 100)
        assert [cancel.reason for cancel in served.engine.cancels()] == ["gone"]


async def test_a_refused_grammar_is_told_under_the_clients_field(runtime_dir: Path) -> None:
    """D7: the engine's words reach the client under the name that it has sent."""
    async with serving(runtime_dir) as served:
        form = {"type": "json_schema", "schema": {"title": UNCOMPILABLE}}
        status, reply = await served.answer(MESSAGES, ask("x", output_config={"format": form}))
        assert (status, reply["error"]["message"]) == (
            400,
            "output_config.format: the grammar does not compile: uncompilable at 1(8)",
        )
        grammar = Grammar(kind="json_schema", text=json.dumps({"title": UNCOMPILABLE}, separators=(",", ":")))
        assert served.engine.submits()[0].grammar == grammar
