"""Each Python client in the conversations with a tool, streamed and whole: what it showed, called and sent back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal

import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.conversations import CONVERSATIONS, DESCRIPTION, PARAMETERS, RESULTS, Told
from tests.e2e.cluster import MODEL_ID

FUNCTION: Any = {"name": "weather", "description": DESCRIPTION, "parameters": PARAMETERS}


def openai_chat(url: str, question: str, is_streamed: bool) -> Told:
    """OpenAI's: the message that its parser or its stream's sum made goes back as it is."""
    messages: list[Any] = [{"role": "user", "content": question}]
    asked: Any = {"model": MODEL_ID, "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}
    with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:

        def turn(finish: str) -> Any:
            if is_streamed:
                with client.chat.completions.stream(**asked) as stream:
                    (choice,) = stream.get_final_completion().choices
            else:
                (choice,) = client.chat.completions.create(**asked).choices
            assert choice.finish_reason == finish
            return choice.message

        called = turn("tool_calls")
        cities = []
        messages.append(called)
        for call in called.tool_calls:
            cities.append(json.loads(call.function.arguments)["city"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULTS[cities[-1]]})
        answer = turn("stop").content
    return Told(tuple(cities), answer, getattr(called, "reasoning_content", ""))


def openai_responses(url: str, question: str, is_streamed: bool) -> Told:
    """OpenAI's, on its newer API: all items of the output go back, reasoning too."""
    items: list[Any] = [{"role": "user", "content": question}]
    asked: Any = {"model": MODEL_ID, "input": items, "tools": [{"type": "function", "strict": False, **FUNCTION}]}
    with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:

        def turn() -> Any:
            if is_streamed:
                with client.responses.stream(**asked) as stream:
                    return stream.get_final_response()
            return client.responses.create(**asked)

        called = turn()
        items += called.output
        thoughts, cities = [], []
        for item in called.output:
            if item.type == "reasoning":
                thoughts += [part.text for part in item.content]
            else:
                cities.append(json.loads(item.arguments)["city"])
                output = {"type": "function_call_output", "call_id": item.call_id, "output": RESULTS[cities[-1]]}
                items.append(output)
        answer = turn()
    assert [item.type for item in answer.output] == ["message"]
    return Told(tuple(cities), answer.output_text, "".join(thoughts))


def anthropic(url: str, question: str, is_streamed: bool) -> Told:
    """Anthropic's: the reply's blocks go back, thinking and its signature too."""
    messages: list[Any] = [{"role": "user", "content": question}]
    tool = {"name": "weather", "description": DESCRIPTION, "input_schema": PARAMETERS}
    asked: Any = {"model": MODEL_ID, "max_tokens": 400, "messages": messages, "tools": [tool]}
    with Anthropic(base_url=url, api_key="any", max_retries=0) as client:

        def turn(stop: str) -> Any:
            if is_streamed:
                with client.messages.stream(**asked) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
            assert message.stop_reason == stop
            return message.content

        called = turn("tool_use")
        messages.append({"role": "assistant", "content": called})
        calls = [block for block in called if block.type == "tool_use"]
        cities = tuple(call.input["city"] for call in calls)
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": RESULTS[city]}
            for call, city in zip(calls, cities, strict=True)
        ]
        messages.append({"role": "user", "content": results})
        (answer,) = turn("end_turn")
    return Told(cities, answer.text, "".join(block.thinking for block in called if block.type == "thinking"))


def anthropic_runner(url: str, question: str, is_streamed: bool) -> Told:
    """Anthropic's loop: it asks for a thread, goes on without, calls the function and sends what it returned."""
    cities: list[str] = []

    @beta_tool(description=DESCRIPTION, input_schema=PARAMETERS)
    def weather(city: str) -> str:
        cities.append(city)
        return RESULTS[city]

    asked: Any = {"model": MODEL_ID, "max_tokens": 400, "messages": [{"role": "user", "content": question}]}
    with Anthropic(base_url=url, api_key="any", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(**asked, tools=[weather], stream=is_streamed)
        turns: list[Any] = [turn.get_final_message() if is_streamed else turn for turn in runner]
    called, answered = turns
    (answer,) = answered.content
    return Told(
        tuple(cities), answer.text, "".join(block.thinking for block in called.content if block.type == "thinking")
    )


def langchain(url: str, question: str, is_streamed: bool) -> Told:
    """LangChain's: messages of its own, chunks added up."""
    model = ChatOpenAI(base_url=f"{url}/v1", api_key="any", model=MODEL_ID, max_retries=0)  # type: ignore[arg-type]
    bound = model.bind_tools([{"type": "function", "function": FUNCTION}])
    messages: list[Any] = [HumanMessage(question)]

    def turn() -> Any:
        if not is_streamed:
            return bound.invoke(messages)
        summed, *rest = bound.stream(messages)
        for chunk in rest:
            summed += chunk
        return summed

    called = turn()
    cities = tuple(call["args"]["city"] for call in called.tool_calls)
    messages.append(called)
    for call, city in zip(called.tool_calls, cities, strict=True):
        messages.append(ToolMessage(RESULTS[city], tool_call_id=call["id"]))
    return Told(cities, turn().text, None)


@asynccontextmanager
async def chat_model(url: str) -> AsyncIterator[Model]:
    """PydanticAI's for OpenAI's chats."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield OpenAIChatModel(MODEL_ID, provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def responses_model(url: str) -> AsyncIterator[Model]:
    """PydanticAI's for OpenAI's Responses API."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield OpenAIResponsesModel(MODEL_ID, provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def messages_model(url: str) -> AsyncIterator[Model]:
    """PydanticAI's for Anthropic's API."""
    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        yield AnthropicModel(MODEL_ID, provider=AnthropicProvider(anthropic_client=client))


def pydantic_ai(
    make: Callable[[str], AbstractAsyncContextManager[Model]], url: str, question: str, is_streamed: bool
) -> Told:
    """PydanticAI's loop, over one of its models: it calls the function, sends what it returned, and asks again."""
    cities: list[str] = []

    async def weather(city: Literal["Oslo", "Lima"]) -> str:
        cities.append(city)
        return RESULTS[city]

    async def carried() -> tuple[str, list[ModelMessage]]:
        async with make(url) as model:
            agent = Agent(model, retries=0, tools=[Tool(weather, description=DESCRIPTION)])
            if not is_streamed:
                run = await agent.run(question)
                return run.output, run.all_messages()
            async with agent.run_stream(question) as stream:
                return await stream.get_output(), stream.all_messages()

    answer, messages = asyncio.run(carried())
    parts = [part for message in messages for part in message.parts if isinstance(part, ThinkingPart)]
    # Where a server shows the reasoning itself, not a summary of it, it is kept there.
    raw = [text for part in parts for text in (part.provider_details or {}).get("raw_content", [])]
    return Told(tuple(cities), answer, "".join(raw or [part.content for part in parts]))


SPEAKERS: dict[str, Callable[[str, str, bool], Told]] = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "anthropic-runner": anthropic_runner,
    "langchain": langchain,
    "pydantic-ai": partial(pydantic_ai, chat_model),
    "pydantic-ai-responses": partial(pydantic_ai, responses_model),
    "pydantic-ai-anthropic": partial(pydantic_ai, messages_model),
}


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("client", SPEAKERS)
def test_a_tool_is_called_and_the_answer_found(speaking: str, client: str, name: str, is_streamed: bool) -> None:
    """Every call with its arguments, in order, the thought before it, and the answer that the results lead to."""
    conversation = CONVERSATIONS[name]
    told = SPEAKERS[client](speaking, conversation.question, is_streamed)
    assert told.cities == conversation.cities
    assert told.answer == conversation.answer
    assert (told.thought or "") == ("" if told.thought is None else conversation.thought)
