"""A tool call over HTTP: a real model, which has no tools in its template, is made to write one."""

import json
from typing import Any

import pytest

from tests.e2e.client import CHAT, chat, client_of
from tests.e2e.cluster import Cluster

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def call_of(events: list[Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a stream's only call."""
    parts = [part for event in events for part in event["choices"][0]["delta"].get("tool_calls", [])]
    assert {part["index"] for part in parts} == {0}
    assert [part["type"] for part in parts if "id" in part] == ["function"]
    return parts[0]["function"]["name"], json.loads("".join(part["function"]["arguments"] for part in parts))


@pytest.mark.parametrize("max_tokens", [1, 3, 6])
async def test_a_forced_call_that_is_cut_early_is_nothing(cluster: Cluster, max_tokens: int) -> None:
    """Not a mark of it, streamed or not: no content, no call, and `length`."""
    if cluster.kind == "fake":
        pytest.skip("follows no grammar; tests/frontend/test_tool_calls.py cuts its calls")
    body = chat("Weather?", tools=[WEATHER], tool_choice="required", temperature=0, max_tokens=max_tokens)
    async with client_of(cluster.url) as client:
        stream = await client.stream(CHAT, body)
        whole = await client.ask(CHAT, body)
    message = whole.body["choices"][0]["message"]
    assert (stream.text, stream.finish_reasons) == ("", ["length"])
    assert (message["content"], "tool_calls" in message, whole.finish_reason) == ("", False, "length")


async def test_a_named_tool_is_called(cluster: Cluster) -> None:
    """Streamed, with arguments that fit its schema, once; the same call in a reply that is not streamed."""
    if cluster.kind == "fake":
        pytest.skip("follows no grammar; tests/frontend/test_tool_calls.py has its calls")
    choice = {"type": "function", "function": {"name": "weather"}}
    body = chat(
        "How is the weather in Oslo for 3 days?", tools=[WEATHER], tool_choice=choice, temperature=0, max_tokens=80
    )
    async with client_of(cluster.url) as client:
        stream = await client.stream(CHAT, body)
        whole = await client.ask(CHAT, body)
    name, arguments = call_of(stream.events[:-1])
    assert (name, sorted(arguments), type(arguments["days"])) == ("weather", ["city", "days"], int)
    assert stream.finish_reasons == ["tool_calls"]
    (call,) = whole.body["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (name, arguments)
    assert whole.body["choices"][0]["message"]["content"] is None
