"""Tool calls and reasoning over HTTP on a FakeEngine: streamed and whole, cut, stopped, with log-probabilities."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.deadline import until
from tests.fakes.serving import Served, serving

CHAT = "/v1/chat/completions"
CALL = '<tool_call> {"name": "weather", "arguments": {"city": "Oslo"}} </tool_call>'
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now"}},
]


def asking(reply: str, **fields: Any) -> dict[str, Any]:
    """A request with tools that is answered with this text, a token a step."""
    return {"messages": [{"role": "user", "content": f"!echo {reply}"}], "tools": TOOLS, **fields}


async def both(served: Served, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a whole reply and the same of a stream's deltas, each with its finish reason."""
    status, whole = await served.answer(CHAT, body)
    assert status == 200, whole
    choice = whole["choices"][0]
    events = await served.events(CHAT, body)
    assert events[-1] == "[DONE]"
    return {**choice["message"], "finish": choice["finish_reason"]}, joined(events[:-1])


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the deltas."""
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    for event in events:
        choice = event["choices"][0]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            if name in delta:
                message[name] = message.get(name, "") + delta[name]
        for part in delta.get("tool_calls", []):
            if "id" in part:
                assert part["index"] == len(message["tool_calls"])
                message["tool_calls"].append(part)
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        message["finish"] = choice["finish_reason"]
    return message


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and arguments."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])
    ]


async def test_calls_are_told_streamed_and_whole(runtime_dir: Path) -> None:
    """With ids of their own, the text before them, and the finish reason `tool_calls`."""
    async with serving(runtime_dir) as served:
        messages = await both(served, asking(f'Well: {CALL} <tool_call> {{"name": "now"}} </tool_call>'))
        for message in messages:
            assert message["content"] == "Well: "
            assert message["finish"] == "tool_calls"
            assert calls_of(message) == [("weather", {"city": "Oslo"}), ("now", {})]
        ids = [call["id"] for message in messages for call in message["tool_calls"]]
        assert len(set(ids)) == 4
        assert all(id_.startswith("call_") for id_ in ids)


async def test_arguments_are_streamed_while_they_come(runtime_dir: Path) -> None:
    """More than one delta, the first of them before the call is whole."""
    async with serving(runtime_dir, step_ms=10) as served:
        text = '<tool_call> {"name": "weather", "arguments": {"city": "one two three four five"}} </tool_call>'
        events = await served.events(CHAT, asking(text))
        deltas = [event["choices"][0]["delta"] for event in events[:-1]]
        arguments = [delta for delta in deltas if "tool_calls" in delta and "id" not in delta["tool_calls"][0]]
        assert len(arguments) > 1


async def test_only_calls_have_no_content(runtime_dir: Path) -> None:
    """As OpenAI has it: null."""
    async with serving(runtime_dir) as served:
        _, whole = await served.answer(CHAT, asking(CALL))
        assert whole["choices"][0]["message"]["content"] is None


async def test_a_call_that_is_cut_ends_with_length(runtime_dir: Path) -> None:
    """It stays as far as it came."""
    async with serving(runtime_dir) as served:
        _, whole = await served.answer(CHAT, asking(CALL))
        used = whole["usage"]["completion_tokens"]
        for message in await both(served, asking(CALL, max_tokens=used - 20)):
            assert message["finish"] == "length"
            assert message["tool_calls"][0]["function"]["name"] == "weather"
            assert not message["tool_calls"][0]["function"]["arguments"].endswith("}")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_a_forced_call_that_is_cut_before_it_is_told_is_nothing(runtime_dir: Path, choice: Any) -> None:
    """No mark of it reaches the client, streamed or not: empty content and the finish reason `length`."""
    async with serving(runtime_dir) as served:
        for count in range(1, 8):
            for message in await both(served, asking(CALL, tool_choice=choice, max_tokens=count)):
                assert (message["content"], message["finish"]) == ("", "length")
                assert not message.get("tool_calls")


async def test_a_call_that_breaks_is_text_where_the_reply_is_whole(runtime_dir: Path) -> None:
    """A stream has told its beginning already: there it stays as it is, and its client finds that it is no JSON."""
    for broken in (
        '<tool_call> {"name": "weather", "arguments": {"city": Oslo}} </tool_call> Sorry.',
        '<tool_call> {"name": "weather", "arguments": {"city": "Os',
    ):
        async with serving(runtime_dir) as served:
            whole, streamed = await both(served, asking(f"So: {broken}"))
            assert (whole["content"], whole["finish"]) == (f"So: {broken}", "stop")
            assert "tool_calls" not in whole
            assert streamed["content"] == "So: " + broken.partition('"city": ')[2].removeprefix('"Os')
            assert streamed["finish"] == "tool_calls"
            assert broken.partition('"arguments": ')[2].startswith(streamed["tool_calls"][0]["function"]["arguments"])


async def test_a_broken_call_leaves_whole_ones_alone(runtime_dir: Path) -> None:
    """What is whole is called; log-probabilities stay, one a token."""
    async with serving(runtime_dir) as served:
        broken = '<tool_call> {"name": "weather", "arguments": {"city": Oslo}} </tool_call>'
        body = asking(f"{CALL} {broken} {CALL}", logprobs=True)
        _, whole = await served.answer(CHAT, body)
        choice = whole["choices"][0]
        assert calls_of(choice["message"]) == [("weather", {"city": "Oslo"})] * 2
        assert choice["message"]["content"].strip() == broken
        assert choice["finish_reason"] == "tool_calls"
        entries = choice["logprobs"]["content"]
        assert "".join(entry["token"] for entry in entries) == f"{CALL} {broken} {CALL}"


async def test_what_is_no_call_is_text(runtime_dir: Path) -> None:
    """An unknown tool, broken JSON, a call cut in its head: as written, never an error."""
    async with serving(runtime_dir) as served:
        for text in ('<tool_call>{"name": "gone"}</tool_call>', "<tool_call>{x}</tool_call>", "a <tool_call>"):
            for message in await both(served, asking(text)):
                assert (message["content"], message["finish"]) == (text, "stop")
                assert not message.get("tool_calls")


async def test_without_parallel_calls_the_row_ends_after_the_first(runtime_dir: Path) -> None:
    """The engine is told, as by a stop string."""
    async with serving(runtime_dir) as served:
        body = asking(f"{CALL} {CALL} {CALL}", parallel_tool_calls=False)
        _, whole = await served.answer(CHAT, body)
        choice = whole["choices"][0]
        assert (calls_of(choice["message"]), choice["finish_reason"]) == ([("weather", {"city": "Oslo"})], "tool_calls")
        await until(lambda: [cancel.reason for cancel in served.engine.cancels()] == ["stop"], "the row is cancelled")


async def test_a_stop_string_ends_text_but_no_arguments(runtime_dir: Path) -> None:
    """Within a call it is what the tool is given."""
    async with serving(runtime_dir) as served:
        for message in await both(served, asking(f"{CALL} the end", stop=["Oslo", "end"])):
            assert calls_of(message) == [("weather", {"city": "Oslo"})]
            assert message["content"] == " the "
            assert message["finish"] == "tool_calls"


async def test_each_token_has_its_log_probability_once(runtime_dir: Path) -> None:
    """Whatever it became part of."""
    async with serving(runtime_dir) as served:
        body = asking(f"so {CALL} done", logprobs=True)
        _, whole = await served.answer(CHAT, body)
        # The ending token has none.
        expected = whole["usage"]["completion_tokens"] - 1
        entries = whole["choices"][0]["logprobs"]["content"]
        assert len(entries) == expected
        assert "".join(entry["token"] for entry in entries) == f"so {CALL} done"
        events = await served.events(CHAT, body)
        found = [event["choices"][0]["logprobs"] for event in events[:-1]]
        assert [entry for one in found if one for entry in one["content"]] == entries


async def test_a_required_call_is_sent_as_a_grammar(runtime_dir: Path) -> None:
    """The engine constrains the row."""
    async with serving(runtime_dir) as served:
        await served.answer(CHAT, asking(CALL, tool_choice="required"))
        grammar = served.engine.submits()[-1].grammar
        assert grammar is not None
        assert "call_0" in grammar.text


@pytest.mark.parametrize("field", ["enable_thinking", "reasoning_effort"])
async def test_fields_that_this_template_does_not_read_are_named(runtime_dir: Path, field: str) -> None:
    """In the response header."""
    async with serving(runtime_dir) as served:
        body = {**asking("x"), field: True if field == "enable_thinking" else "low"}
        async with await served.post(CHAT, body) as reply:
            assert reply.headers["x-convoy-ignored"] == field
