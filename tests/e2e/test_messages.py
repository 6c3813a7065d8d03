"""Anthropic's messages from socket to socket: events, stops, endings, characters, limits, failures, cancellations."""

import asyncio
from typing import Any

import pytest

from tests.e2e.client import Client, client_of
from tests.e2e.cluster import CONTEXT_TOKENS, MODEL_ID, Cluster, stats
from tests.e2e.speakers import message_tokens
from tests.e2e.waits import no_row, one_cancel, rows_are
from tests.fakes.named_events import StreamedMessage, named_events

MESSAGES = "/v1/messages"
QUESTION = "Tell me about a long bridge over a quiet river."
SHORT_QUESTION = "What is the capital of France? Answer in one word."


def ask(text: str, **fields: Any) -> dict[str, Any]:
    """A body with one message."""
    return {"messages": [{"role": "user", "content": text}], **fields}


async def streamed(client: Client, body: dict[str, Any]) -> StreamedMessage:
    """A whole stream."""
    async with await client.begin(MESSAGES, {**body, "stream": True}) as response:
        raw = await response.read()
        assert response.status == 200, raw
        return StreamedMessage(named_events(raw))


def text_of(body: dict[str, Any]) -> str:
    """All text of a whole reply."""
    return "".join(block["text"] for block in body["content"])


async def test_a_stream_in_order(cluster: Cluster) -> None:
    """A1, A11: start, one block of text, end with the counts, stop; the whole reply is the same."""
    async with client_of(cluster.url) as client:
        body = ask(QUESTION, max_tokens=8, ignore_eos=True)
        found, whole = await streamed(client, body), await client.ask(MESSAGES, body)
    inner = found.types[2:-3]
    assert found.types[:2] + found.types[-3:] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert set(inner) == {"content_block_delta"}
    start = found.events[0]["message"]
    assert (start["model"], start["content"], start["stop_reason"]) == (MODEL_ID, [], None)
    assert (found.end["stop_reason"], found.end["usage"]["output_tokens"]) == ("max_tokens", 8)
    assert message_tokens(start["usage"])[0] == message_tokens(found.end["usage"])[0] > 8
    assert whole.body["content"] == found.blocks
    assert message_tokens(whole.body["usage"]) == message_tokens(found.end["usage"])


async def test_stop_sequences(cluster: Cluster) -> None:
    """A2: text is cut before the first of them that comes, which is told; the row leaves."""
    async with client_of(cluster.url) as client:
        free = text_of((await client.ask(MESSAGES, ask(QUESTION, max_tokens=20, ignore_eos=True))).body)
        middle = free[len(free) // 2 :][:6]
        for stop in (middle, free[:2]):
            body = ask(QUESTION, max_tokens=100, ignore_eos=True, stop_sequences=["never said", stop])
            found, whole = await streamed(client, body), await client.ask(MESSAGES, body)
            assert found.text == free[: free.find(stop)] == text_of(whole.body)
            assert (found.end["stop_reason"], found.end["stop_sequence"]) == ("stop_sequence", stop)
            assert whole.body["stop_sequence"] == stop
    await no_row(cluster.url)


async def test_endings(cluster: Cluster) -> None:
    """A3: the model's own end is end_turn, also on exactly the last token; one token less is max_tokens."""
    async with client_of(cluster.url) as client:
        natural = await client.ask(MESSAGES, ask(SHORT_QUESTION, max_tokens=200))
        tokens = natural.body["usage"]["output_tokens"]
        assert natural.body["stop_reason"] == "end_turn"
        assert "<|" not in text_of(natural.body)
        for most, reason in ((tokens, "end_turn"), (tokens - 1, "max_tokens")):
            reply = await client.ask(MESSAGES, ask(SHORT_QUESTION, max_tokens=most))
            assert (reply.body["stop_reason"], reply.body["usage"]["output_tokens"]) == (reason, most)
            assert text_of(reply.body) == text_of(natural.body)


async def test_split_characters(cluster: Cluster) -> None:
    """A4: no half character in a delta, and the deltas add up to the text that is not streamed."""
    async with client_of(cluster.url) as client:
        echo = "!echo " if cluster.kind == "fake" else "Repeat this: "
        body = ask(f"{echo}one 🦊 two é 数える", max_tokens=cluster.tokens(fake=60, real=16))
        found, whole = await streamed(client, body), await client.ask(MESSAGES, body)
    assert found.text == text_of(whole.body)
    assert sum(delta.count("\ufffd") for delta in found.deltas) == found.text.count("\ufffd")
    assert len(found.deltas) > 1
    assert cluster.kind != "fake" or "one 🦊 two é 数える" in found.text


async def test_the_reply_goes_on_in_the_last_turn(cluster: Cluster) -> None:
    """A prefilled turn is part of the prompt, not of the reply."""
    async with client_of(cluster.url) as client:
        turns = [
            {"role": "user", "content": SHORT_QUESTION},
            {"role": "assistant", "content": "The capital of France is"},
        ]
        reply = await client.ask(MESSAGES, {"messages": turns, "max_tokens": 5})
        count = await client.ask(f"{MESSAGES}/count_tokens", {"messages": turns})
    assert (reply.status, message_tokens(reply.body["usage"])[0]) == (200, count.body["input_tokens"])
    assert "The capital" not in text_of(reply.body)
    assert cluster.kind == "fake" or "Paris" in text_of(reply.body)


async def test_the_context(cluster: Cluster) -> None:
    """A6: a limit beyond the context is clamped and the end told; a prompt over it is refused with both numbers."""
    async with client_of(cluster.url) as client:
        count = await client.ask(f"{MESSAGES}/count_tokens", ask("lorry " * 100))
        words = 100 * (CONTEXT_TOKENS - 20) // count.body["input_tokens"]
        reply = await client.ask(MESSAGES, ask("lorry " * words, max_tokens=100_000, ignore_eos=True))
        assert (reply.status, reply.body["stop_reason"]) == (200, "model_context_window_exceeded")
        usage = reply.body["usage"]
        assert sum(message_tokens(usage)) == CONTEXT_TOKENS
        refused = await client.ask(MESSAGES, ask("lorry " * 2_000, max_tokens=5))
        count = await client.ask(f"{MESSAGES}/count_tokens", ask("lorry " * 2_000))
    message = refused.body["error"]["message"]
    assert (refused.status, refused.body["error"]["type"]) == (400, "invalid_request_error")
    assert message.startswith("prompt is too long: ")
    assert message.endswith(f" tokens > {CONTEXT_TOKENS} maximum")
    assert count.body["input_tokens"] > CONTEXT_TOKENS


async def test_names(cluster: Cluster) -> None:
    """A8: served names are taken; another is a 404 that names them."""
    async with client_of(cluster.url) as client:
        reply = await client.ask(MESSAGES, ask("Hello.", model="my-name", max_tokens=2))
        assert (reply.status, reply.body["model"]) == (200, "my-name")
        refused = await client.ask(MESSAGES, ask("Hello.", model="claude-opus", max_tokens=2))
    assert (refused.status, refused.body["error"]["type"]) == (404, "not_found_error")
    assert all(name in refused.body["error"]["message"] for name in (MODEL_ID, "my-name"))


async def test_a_schema_constrains_the_reply(cluster: Cluster) -> None:
    """D6: the text is JSON of the schema."""
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    async with client_of(cluster.url) as client:
        body = ask("Say n.", max_tokens=30, output_config={"format": {"type": "json_schema", "schema": schema}})
        reply = await client.ask(MESSAGES, body)
    assert reply.status == 200
    assert cluster.kind == "fake" or text_of(reply.body) == '{"n":7}'


async def test_deadline(cluster: Cluster) -> None:
    """A12: 408 when nothing was sent; in a stream an `error` event, and no end."""
    async with client_of(cluster.url) as client:
        body = ask("Tell me a long story.", ignore_eos=True)
        reply = await client.ask(MESSAGES, {**body, "timeout": 0.5})
        assert (reply.status, reply.body["error"]["type"]) == (408, "timeout_error")
        found = StreamedMessage(named_events(await client.late_stream(MESSAGES, body)))
    assert found.events[-1]["error"]["type"] == "timeout_error"
    assert not {"message_delta", "message_stop"} & set(found.types)
    assert found.text


@pytest.mark.parametrize("is_stream", [True, False])
async def test_client_gone(cluster: Cluster, is_stream: bool) -> None:
    """A5: streamed or not, exactly one Cancel, and the row is gone."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        body = ask(QUESTION, ignore_eos=True, stream=is_stream)
        leaver = asyncio.create_task(client.begin(MESSAGES, body))
        if is_stream:
            response = await leaver
            await response.content.readuntil(b"content_block_delta")
            response.close()
        else:
            await rows_are(cluster.url, decoding=1)
            leaver.cancel()
        await one_cancel(cluster.url, before)
