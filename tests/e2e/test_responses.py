"""The Responses API over HTTP: streams, whole replies and stored ones, over two frontends and both engines."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.client import CHAT, Client, chat, client_of
from tests.e2e.cluster import MODEL_ID, Cluster, stats
from tests.e2e.waits import one_cancel, rows_are
from tests.fakes.serving import named_events

RESPONSES = "/v1/responses"
QUESTION = "Tell me about a long bridge over a quiet river."
SHORT_QUESTION = "What is the capital of France? Answer in one word."


async def whole(client: Client, status: int = 200, **fields: Any) -> dict[str, Any]:
    """A reply that is not streamed."""
    reply = await client.ask(RESPONSES, {"input": QUESTION, "temperature": 0, **fields})
    assert reply.status == status, reply.body
    return reply.body


async def streamed(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream."""
    async with await client.begin(
        RESPONSES, {"input": QUESTION, "temperature": 0, **fields, "stream": True}
    ) as response:
        raw = await response.read()
        assert response.status == 200, raw
        return named_events(raw)


def text_of(response: dict[str, Any]) -> str:
    """All that its messages say."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


async def test_order_of_a_stream(cluster: Cluster) -> None:
    """A1: created, in progress, one item with one part, deltas, their ends, the end; numbered, and with no `[DONE]`."""
    async with client_of(cluster.url) as client:
        events = await streamed(client, max_output_tokens=8)
    types = [event["type"].removeprefix("response.") for event in events]
    deltas = types.count("output_text.delta")
    assert types == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * deltas,
        *("output_text.done", "content_part.done", "output_item.done", "incomplete"),
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    response = events[-1]["response"]
    assert (response["model"], response["status"]) == (MODEL_ID, "incomplete")
    assert response["usage"]["output_tokens"] == 8
    assert "".join(event["delta"] for event in events if "delta" in event) == text_of(response)


async def test_streamed_and_whole_agree(cluster: Cluster) -> None:
    """A4, A11: text, usage and ending; and the same text as a chat of the same messages."""
    async with client_of(cluster.url) as client:
        body = {"max_output_tokens": 12, "instructions": "You are a poet."}
        # Under salts of their own neither finds what the other has computed.
        reply, events = await asyncio.gather(
            whole(client, **body, cache_salt="whole"), streamed(client, **body, cache_salt="stream")
        )
        messages = [{"role": "system", "content": "You are a poet."}, {"role": "user", "content": QUESTION}]
        same = await client.ask(CHAT, {"messages": messages, "max_tokens": 12, "temperature": 0})
    last = events[-1]["response"]
    assert (text_of(reply), reply["usage"], reply["status"]) == (text_of(last), last["usage"], last["status"])
    assert text_of(reply) == same.text
    assert reply["usage"]["input_tokens"] == same.body["usage"]["prompt_tokens"]


async def test_endings(cluster: Cluster) -> None:
    """A2, A3: the model's own end and a stop string complete, and neither is text."""
    async with client_of(cluster.url) as client:
        natural = await whole(client, input=SHORT_QUESTION)
        assert (natural["status"], natural["incomplete_details"]) == ("completed", None)
        assert "<|" not in text_of(natural)
        stop = text_of(natural)[1:4]
        stopped = await whole(client, input=SHORT_QUESTION, stop=stop)
        assert (stopped["status"], text_of(stopped)) == ("completed", text_of(natural).partition(stop)[0])


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves(cluster: Cluster, is_stream: bool) -> None:
    """A5: one Cancel, and the row is gone."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        body = {"input": QUESTION, "ignore_eos": True, "stream": is_stream}
        leaver = asyncio.create_task(client.begin(RESPONSES, body))
        if is_stream:
            response = await leaver
            await response.content.readuntil(b"output_text.delta")
            response.close()
        else:
            await rows_are(cluster.url, decoding=1)
            leaver.cancel()
        await one_cancel(cluster.url, before)


async def test_another_frontend_goes_on(cluster: Cluster) -> None:
    """A7: what one frontend stores, the other goes on from, names an item of, and deletes."""
    async with client_of(cluster.url) as client, client_of(cluster.frontends[1].url) as other:
        first = (await streamed(client, max_output_tokens=6))[-1]["response"]
        second = await whole(other, input="And now?", previous_response_id=first["id"], max_output_tokens=6)
        messages = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": text_of(first)},
            {"role": "user", "content": "And now?"},
        ]
        same = await client.ask(CHAT, {"messages": messages, "max_tokens": 6, "temperature": 0})
        assert text_of(second) == same.text
        named = [{"role": "user", "content": QUESTION}, {"type": "item_reference", "id": first["output"][0]["id"]}]
        third = await whole(other, input=[*named, {"role": "user", "content": "And now?"}], max_output_tokens=6)
        assert text_of(third) == same.text
        async with other.session.delete(f"{other.url}{RESPONSES}/{first['id']}") as response:
            assert response.status == 200
        gone = await whole(client, 400, previous_response_id=second["id"])
        assert gone["error"]["code"] == "previous_response_not_found"


async def test_a_schema_and_logprobs(cluster: Cluster) -> None:
    """D4, D6: one entry for each token of the text; a real model's reply fits the schema."""
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Lima"]}, "cold": {"type": "boolean"}},
        "required": ["city", "cold"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "weather", "strict": True, "schema": schema}
    async with client_of(cluster.url) as client:
        fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 40}
        reply = await whole(client, text={"format": form}, **fields)
        bad = await whole(client, 400, text={"format": {**form, "schema": {"type": "uncompilable"}}})
    (part,) = reply["output"][0]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in part["logprobs"]).decode() == part["text"]
    # Where the grammar leaves one token, it has no alternative.
    assert {len(entry["top_logprobs"]) for entry in part["logprobs"]} <= ({2} if cluster.kind == "fake" else {1, 2})
    assert (bad["error"]["param"], "uncompilable" in bad["error"]["message"]) == ("text.format", True)
    if cluster.kind == "real":
        assert set(json.loads(part["text"])) == {"city", "cold"}


async def test_eight_at_once_are_each_their_own(cluster: Cluster) -> None:
    """Eight streams in one batch: each has its own text, and each is stored."""
    async with client_of(cluster.url) as client:
        prompts = [f"Count from {number} and go on about the number {number * 7}." for number in range(8)]
        streams = await asyncio.gather(*(streamed(client, input=text, max_output_tokens=8) for text in prompts))
        ended = [events[-1]["response"] for events in streams]
        chats = await asyncio.gather(*(client.ask(CHAT, chat(text, max_tokens=8, temperature=0)) for text in prompts))
        assert [text_of(response) for response in ended] == [reply.text for reply in chats]
        for response in ended:
            async with client.session.get(f"{client.url}{RESPONSES}/{response['id']}") as found:
                assert await found.json() == response
