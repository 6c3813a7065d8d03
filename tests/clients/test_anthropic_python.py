"""Anthropic's own Python client against both engines: replies, streams, lists, counts, its exceptions."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic

from tests.clients.conftest import CONTEXT_TOKENS, Asked
from tests.e2e.client import FIRST_TIMEOUT_S
from tests.e2e.cluster import MODEL_ID, Cluster, stats
from tests.e2e.speakers import message_tokens
from tests.e2e.waits import one_cancel

QUESTION = "Tell me about a long bridge over a quiet river."
ASKED: dict[str, Any] = {"model": MODEL_ID, "max_tokens": 8, "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncAnthropic]:
    """As a user makes it."""
    async with AsyncAnthropic(base_url=cluster.url, api_key="any", max_retries=0) as made:
        yield made


async def test_a_reply(client: AsyncAnthropic) -> None:
    """Read as the client's own types."""
    message = await client.messages.create(**ASKED, system="Be brief.", extra_body={"temperature": 0.5, "seed": 7})
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL_ID)
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 8
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert message._request_id is not None


async def test_a_stream_adds_up(client: AsyncAnthropic) -> None:
    """The client's own sum of the events is the reply that is not streamed."""
    whole = await client.messages.create(**ASKED)
    async with client.messages.stream(**ASKED) as stream:
        texts = [text async for text in stream.text_stream]
        final = await stream.get_final_message()
    assert "".join(texts) == whole.content[0].text  # type: ignore[union-attr]
    assert final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert (message_tokens(final.usage.model_dump()), final.stop_reason) == (
        message_tokens(whole.usage.model_dump()),
        whole.stop_reason,
    )


async def test_raw_events(client: AsyncAnthropic) -> None:
    """As agents read them."""
    events = [event.type async for event in await client.messages.create(**ASKED, stream=True)]
    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_a_stop_sequence(client: AsyncAnthropic) -> None:
    """It is told in both ways."""
    whole = await client.messages.create(**ASKED)
    stop = whole.content[0].text[4:8]  # type: ignore[union-attr]
    stopped = await client.messages.create(**ASKED, stop_sequences=[stop])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)


async def test_counts_and_lists(client: AsyncAnthropic) -> None:
    """The count is the reply's; each listed model can be asked for."""
    message = await client.messages.create(**ASKED)
    count = await client.messages.count_tokens(model=MODEL_ID, messages=ASKED["messages"])
    assert count.input_tokens == message_tokens(message.usage.model_dump())[0]
    listed = [model async for model in client.models.list()]
    assert [model.id for model in listed] == [MODEL_ID, "my-name"]
    paged = [model.id async for model in client.models.list(limit=1)]
    assert paged == [MODEL_ID, "my-name"]
    assert (await client.models.retrieve("my-name")).created_at.year >= 2025


async def test_errors_are_its_exceptions(client: AsyncAnthropic) -> None:
    """By status, with type, message and the request's id."""
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await client.messages.create(**{**ASKED, "model": "claude-x"})
    assert (unknown.value.type, unknown.value.error_code) == ("not_found_error", "model_not_found")
    assert unknown.value.request_id is not None
    content = [{"type": "image", "source": {"type": "url", "url": "http://x"}}]
    with pytest.raises(anthropic.BadRequestError) as image:
        await client.messages.create(**{**ASKED, "messages": [{"role": "user", "content": content}]})
    assert "messages.0.content.0" in str(image.value.api_message)
    with pytest.raises(anthropic.BadRequestError) as long:
        await client.messages.create(**{**ASKED, "messages": [{"role": "user", "content": "lorry " * 6_000}]})
    assert str(long.value.api_message).endswith(f"> {CONTEXT_TOKENS} maximum")
    with pytest.raises(anthropic.RequestTimeoutError):
        await client.messages.create(**{**ASKED, "max_tokens": 400}, extra_body={"timeout": 0.05, "ignore_eos": True})


async def test_a_failure_in_a_stream_is_its_exception(client: AsyncAnthropic) -> None:
    """After the 200, by the type of the `error` event."""
    fields = {**ASKED, "max_tokens": 400, "stream": True}
    timeout_s = FIRST_TIMEOUT_S
    while True:
        try:
            stream = await client.messages.create(**fields, extra_body={"timeout": timeout_s, "ignore_eos": True})
            break
        except anthropic.RequestTimeoutError:
            # Nothing was said by then.
            timeout_s *= 2
    assert (await anext(stream)).type == "message_start"
    with pytest.raises(anthropic.APIStatusError) as late:
        assert "message_stop" not in [event.type async for event in stream]
    assert late.value.type == "timeout_error"


async def test_a_stream_that_is_closed_cancels_its_row(cluster: Cluster, client: AsyncAnthropic) -> None:
    """A5: as soon as the client leaves its block."""
    before = stats(cluster.url)
    async with client.messages.stream(**{**ASKED, "max_tokens": 400}, extra_body={"ignore_eos": True}) as stream:
        async for text in stream.text_stream:
            assert text
            break
    await one_cancel(cluster.url, before)


async def test_a_schema_is_parsed(cluster: Cluster, client: AsyncAnthropic) -> None:
    """Structured output, as the client asks for it."""
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    message = await client.messages.create(
        **{**ASKED, "max_tokens": 30}, output_config={"format": {"type": "json_schema", "schema": schema}}
    )
    assert cluster.kind == "fake" or message.content[0].text == '{"n":7}'  # type: ignore[union-attr]


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"name": "weather", "description": "Tells the weather in a city.", "input_schema": SCHEMA}


async def test_a_tool_round_trip(client: AsyncAnthropic, asked: Asked) -> None:
    """A call, which a real model is made to write, streamed and whole; its result goes back, and is counted."""
    turns: list[Any] = [{"role": "user", "content": asked.call}]
    asking: Any = {"model": MODEL_ID, "max_tokens": 120, "tools": [TOOL]}
    asking["tool_choice"] = {"type": "tool", "name": "weather"} if asked.is_forced else {"type": "auto"}
    first = await client.messages.create(**asking, messages=turns)
    async with client.messages.stream(**asking, messages=turns) as stream:
        streamed = await stream.get_final_message()
    for message in (first, streamed):
        assert message.stop_reason == "tool_use"
        (call,) = [block for block in message.content if block.type == "tool_use"]
        assert (call.name, call.input) in [("weather", {"city": city}) for city in ("Oslo", "Rome")]
    turns.append({"role": "assistant", "content": [block.model_dump() for block in streamed.content]})
    turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]})
    answer = await client.messages.create(model=MODEL_ID, max_tokens=8, tools=[TOOL], messages=turns)
    assert answer.stop_reason in ("max_tokens", "end_turn")
    count = await client.messages.count_tokens(model=MODEL_ID, tools=[TOOL], messages=turns)
    assert count.input_tokens == message_tokens(answer.usage.model_dump())[0]
