"""OpenAI's Python client on chat completions."""

import openai
import pytest
from openai import OpenAI

from tests.clients.conftest import Asked
from tests.clients.weather import Weather, weather
from tests.e2e.cluster import Cluster, stats
from tests.e2e.waits import one_cancel_here


@pytest.fixture
def client(asked: Asked) -> OpenAI:
    """As a user makes it."""
    return OpenAI(base_url=f"{asked.url}/v1", api_key="any", max_retries=0)


def body(asked: Asked, content: str) -> dict[str, object]:
    return {"model": asked.model, "max_tokens": asked.most, "messages": [{"role": "user", "content": content}]}


def test_streamed_and_whole_are_the_same(client: OpenAI, asked: Asked) -> None:
    """The text in pieces and in one, and the usage of both."""
    whole = client.chat.completions.create(**body(asked, asked.question))
    stream = client.chat.completions.create(
        **body(asked, asked.question), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 3
    # How much of the prompt was found in a cache may differ.
    usages = [each.usage for each in (chunks[-1], whole)]
    assert len({(usage.prompt_tokens, usage.completion_tokens) for usage in usages if usage is not None}) == 1
    assert None not in usages
    assert whole._request_id is not None


def test_a_schema_gives_an_object(client: OpenAI, asked: Asked, cluster: Cluster) -> None:
    """A pydantic model goes out as a strict schema and comes back filled."""
    asking = {**body(asked, asked.json), "max_tokens": 200}
    reply = client.chat.completions.parse(**asking, response_format=Weather, seed=3)
    parsed = reply.choices[0].message.parsed
    assert isinstance(parsed, Weather)
    assert cluster.kind == "real" or parsed == Weather(city="Oslo", isCold=True)


def test_a_tool_is_called(client: OpenAI, asked: Asked) -> None:
    """Read by the client's own parser, streamed and whole; a real model is made to call it."""
    asking = {**body(asked, asked.call), "max_tokens": 80}
    asking |= {"tools": [openai.pydantic_function_tool(weather)], "parallel_tool_calls": False}
    asking["tool_choice"] = "required" if asked.is_forced else "auto"
    whole = client.chat.completions.parse(**asking)
    with client.chat.completions.stream(**asking) as stream:
        streamed = stream.get_final_completion()
    for reply in (whole, streamed):
        (call,) = reply.choices[0].message.tool_calls
        assert isinstance(call.function.parsed_arguments, weather)
        assert asked.is_forced or call.function.parsed_arguments.city == "Oslo"


def test_closing_a_stream_ends_the_row(client: OpenAI, asked: Asked) -> None:
    """The engine drops the row of a stream that its reader closes."""
    before = stats(asked.url)
    with client.chat.completions.create(**{**body(asked, asked.endless), "max_tokens": 400}, stream=True) as stream:
        for _ in range(3):
            next(stream)
    one_cancel_here(asked.url, before)


def test_errors_are_the_clients_own(client: OpenAI, asked: Asked) -> None:
    """404 and 400 with the server's code and field."""
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(**{**body(asked, "x"), "model": "nobody"})
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(**body(asked, "x"), temperature=-1)
    assert wrong.value.param == "temperature"
