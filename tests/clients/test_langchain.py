"""LangChain's chat model for OpenAI's API."""

from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI

from tests.clients.conftest import Asked
from tests.clients.weather import Weather, weather
from tests.e2e.cluster import Cluster, stats
from tests.e2e.waits import one_cancel_here


@pytest.fixture
def make(asked: Asked) -> Any:
    """A model with so many tokens."""

    def made(most: int) -> ChatOpenAI:
        return ChatOpenAI(
            base_url=f"{asked.url}/v1", api_key="any", model=asked.model, max_tokens=most, max_retries=0, temperature=0
        )

    return made


def test_streamed_and_whole_are_the_same(make: Any, asked: Asked) -> None:
    """invoke and stream give one text, and usage."""
    whole = make(asked.most).invoke(asked.question)
    chunks = list(make(asked.most).stream(asked.question))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert len(chunks) > 3
    assert whole.usage_metadata["output_tokens"] > 0


def test_eight_at_once(make: Any, asked: Asked) -> None:
    """batch sends its requests together, and each gets the lone request's answer."""
    model = make(asked.most)
    assert {reply.text for reply in model.batch([asked.question] * 8)} == {model.invoke(asked.question).text}


def test_a_schema_gives_an_object(make: Any, asked: Asked, cluster: Cluster) -> None:
    """with_structured_output by json_schema."""
    parsed = make(200).with_structured_output(Weather, method="json_schema").invoke(asked.json)
    assert isinstance(parsed, Weather)
    assert cluster.kind == "real" or parsed == Weather(city="Oslo", isCold=True)


def test_a_tool_is_called(make: Any, asked: Asked) -> None:
    """bind_tools: the call is the message's, whole and summed up from a stream."""
    choice = "required" if asked.is_forced else "auto"
    bound = make(80).bind_tools([weather], tool_choice=choice, parallel_tool_calls=False)
    whole = bound.invoke(asked.call)
    summed, *rest = bound.stream(asked.call)
    for chunk in rest:
        summed += chunk
    for message in (whole, summed):
        (call,) = message.tool_calls
        assert call["name"] == "weather"
        assert weather(**call["args"]).city in (("Oslo", "Lima") if asked.is_forced else ("Oslo",))


def test_errors_are_the_clients_own(make: Any, asked: Asked) -> None:
    """OpenAI's exceptions, whole and streamed, with the server's code and field."""
    with pytest.raises(openai.NotFoundError) as missing:
        make(asked.most).bind(model="nobody").invoke("x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        list(make(asked.most).bind(temperature=-1).stream("x"))
    assert wrong.value.param == "temperature"


def test_closing_a_stream_ends_the_row(make: Any, asked: Asked) -> None:
    """A generator that is closed closes its connection."""
    before = stats(asked.url)
    stream = make(400).stream(asked.endless)
    for _ in range(4):
        next(stream)
    stream.close()
    one_cancel_here(asked.url, before)
