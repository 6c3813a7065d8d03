"""OpenAI's Python client on the Responses API: its own types, its stream helper, its parser, its tools."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseFunctionToolCall

from tests.clients.conftest import Asked
from tests.clients.weather import Weather
from tests.e2e.cluster import Cluster, stats
from tests.e2e.waits import one_cancel_here

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Look at the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture
def client(asked: Asked) -> Iterator[OpenAI]:
    """As a user makes it."""
    with OpenAI(base_url=f"{asked.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def body(asked: Asked, text: str) -> dict[str, Any]:
    return {"model": asked.model, "max_output_tokens": asked.most, "input": text}


def test_streamed_and_whole_are_the_same(client: OpenAI, asked: Asked) -> None:
    """The text in pieces and in one; the stream helper's own sum is the response."""
    whole = client.responses.create(**body(asked, asked.question))
    with client.responses.stream(**body(asked, asked.question)) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(pieces) == whole.output_text == final.output_text
    assert len(pieces) > 3
    # How much of the prompt was found in a cache may differ.
    usages = [each.usage for each in (final, whole)]
    assert len({(usage.input_tokens, usage.output_tokens) for usage in usages if usage is not None}) == 1
    assert None not in usages
    assert whole._request_id is not None


def test_raw_events(client: OpenAI, asked: Asked) -> None:
    """Numbered, from created to the end."""
    events = list(client.responses.create(**body(asked, asked.question), stream=True))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_schema_gives_an_object(client: OpenAI, asked: Asked, cluster: Cluster) -> None:
    """A pydantic model goes out as a strict schema and comes back filled."""
    asking = {**body(asked, asked.json), "max_output_tokens": 200}
    reply = client.responses.parse(**asking, text_format=Weather, extra_body={"seed": 3})
    assert isinstance(reply.output_parsed, Weather)
    assert cluster.kind == "real" or reply.output_parsed == Weather(city="Oslo", isCold=True)


def test_a_tool_is_called_and_answered(client: OpenAI, asked: Asked) -> None:
    """The call, which a real model is made to write; its output goes back by the store, and an answer comes."""
    asking = {**body(asked, asked.call), "max_output_tokens": 100}
    choice: Any = {"type": "function", "name": "weather"} if asked.is_forced else "auto"
    called = client.responses.create(**asking, tools=[TOOL], tool_choice=choice)
    (call,) = called.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments)["city"] in ("Oslo", "Lima")) == ("weather", True)
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain, 4 degrees."}
    answer = client.responses.create(
        **{**body(asked, ""), "input": [output]}, tools=[TOOL], tool_choice="none", previous_response_id=called.id
    )
    assert answer.output_text
    assert answer.previous_response_id == called.id


def test_stored_responses(client: OpenAI, asked: Asked) -> None:
    """Retrieved, listed, gone on from, deleted; there is nothing to cancel."""
    first = client.responses.create(**body(asked, asked.question))
    assert client.responses.retrieve(first.id).output_text == first.output_text
    second = client.responses.create(**body(asked, asked.question), previous_response_id=first.id)
    items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [item.type for item in items] == ["message"] * 3
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as gone:
        client.responses.create(**body(asked, "x"), previous_response_id=first.id)
    assert (gone.value.code, gone.value.param) == ("previous_response_not_found", "previous_response_id")


def test_closing_a_stream_ends_the_row(client: OpenAI, asked: Asked) -> None:
    """The engine drops the row of a stream that its reader closes."""
    before = stats(asked.url)
    with client.responses.create(**{**body(asked, asked.endless), "max_output_tokens": 400}, stream=True) as stream:
        for _ in range(6):
            next(stream)
    one_cancel_here(asked.url, before)


def test_errors_are_the_clients_own(client: OpenAI, asked: Asked) -> None:
    """404 and 400 with the server's code and field."""
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(**{**body(asked, "x"), "model": "nobody"})
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(**body(asked, "x"), background=True)
    assert wrong.value.param == "background"
