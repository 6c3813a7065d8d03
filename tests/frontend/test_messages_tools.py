"""Tools and reasoning on Anthropic's route over a FakeEngine: real text of calls becomes blocks, and comes back."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from tests.fakes.deadline import until
from tests.fakes.named_events import StreamedMessage, named_events
from tests.fakes.serving import Served, serving
from tests.fakes.tokenizer_folder import CHAT_TEMPLATE, build_tokenizer_folder

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
CALL = '<tool_call> {"name": "weather", "arguments": {"city": "Oslo"}} </tool_call>'
NOW = '<tool_call> {"name": "now"} </tool_call>'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"name": "weather", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}]
NO_THOUGHT = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
THINKING_TEMPLATE = CHAT_TEMPLATE.replace("assistant\n{% endif %}", f"assistant\n{NO_THOUGHT}{{% endif %}}")


def asking(reply: str, **fields: Any) -> dict[str, Any]:
    """A request with tools that is answered with this text, a token a step."""
    messages = [{"role": "user", "content": f"!echo {reply}"}]
    return {"max_tokens": 300, "messages": messages, "tools": TOOLS, **fields}


@pytest.fixture
async def served(runtime_dir: Path) -> AsyncIterator[Served]:
    """A model whose template knows nothing of tools."""
    async with serving(runtime_dir) as found:
        yield found


@pytest.fixture
async def thinker(runtime_dir: Path) -> AsyncIterator[Served]:
    """A model that thinks unless it is told not to."""
    folder = build_tokenizer_folder(runtime_dir / "thinker")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": THINKING_TEMPLATE}))
    async with serving(runtime_dir, model=str(folder)) as found:
        yield found


async def both(served: Served, body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Blocks and stop reason, the same streamed and whole but for the calls' ids."""
    status, whole = await served.answer(MESSAGES, body)
    assert status == 200, whole
    found = await streamed(served, body)
    blocks = [without_id(block) for block in whole["content"]]
    assert [without_id(block) for block in found.blocks] == blocks
    assert found.end["stop_reason"] == whole["stop_reason"]
    return blocks, whole["stop_reason"]


async def streamed(served: Served, body: dict[str, Any]) -> StreamedMessage:
    """A whole stream."""
    async with await served.post(MESSAGES, {**body, "stream": True}) as response:
        return StreamedMessage(named_events(await response.read()))


def without_id(block: dict[str, Any]) -> dict[str, Any]:
    """A block, its id checked and dropped."""
    assert block["type"] != "tool_use" or block["id"].startswith("toolu_")
    return {name: value for name, value in block.items() if name != "id"}


async def test_calls_are_blocks(served: Served) -> None:
    """In their order, with the text before them; each has an id of its own."""
    body = asking(f"Well: {CALL} {NOW}")
    assert await both(served, body) == (
        [
            {"type": "text", "text": "Well: "},
            {"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "name": "now", "input": {}},
        ],
        "tool_use",
    )
    _, whole = await served.answer(MESSAGES, body)
    assert len({block["id"] for block in whole["content"][1:]}) == 2


async def test_arguments_are_streamed_while_they_come(served: Served) -> None:
    """In pieces that add up to the JSON."""
    text = '<tool_call> {"name": "weather", "arguments": {"city": "one two three four five"}} </tool_call>'
    found = await streamed(served, asking(text))
    assert len(found.pieces[0]) > 5
    assert json.loads("".join(found.pieces[0])) == {"city": "one two three four five"}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
async def test_a_forced_call_that_is_cut_before_it_is_told_is_nothing(served: Served, choice: Any) -> None:
    """No block, streamed or not, and max_tokens as the reason."""
    for count in (1, 4, 7):
        assert await both(served, asking(CALL, tool_choice=choice, max_tokens=count)) == ([], "max_tokens")


async def test_a_call_that_breaks_is_text_where_the_reply_is_whole(served: Served) -> None:
    """A stream has opened its block already, which ends where it broke."""
    broken = '<tool_call> {"name": "weather", "arguments": {"city": Oslo}} </tool_call>'
    _, whole = await served.answer(MESSAGES, asking(f"So: {broken}"))
    assert whole["content"] == [{"type": "text", "text": f"So: {broken}"}]
    assert whole["stop_reason"] == "end_turn"
    found = await streamed(served, asking(f"So: {broken}"))
    assert "".join(found.pieces[1]) == '{"city": '
    assert [block["type"] for block in found.blocks] == ["text", "tool_use", "text"]
    assert (found.blocks[2]["text"], found.end["stop_reason"]) == ("Oslo}} </tool_call>", "tool_use")


async def test_a_result_goes_back_to_the_model(served: Served) -> None:
    """The second turn's prompt has the call and its result; the client's own blocks are sent back as they came."""
    _, first = await served.answer(MESSAGES, asking(CALL))
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "rain 🌧"}
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result]},
    ]
    status, second = await served.answer(MESSAGES, {"max_tokens": 5, "tools": TOOLS, "messages": turns})
    prompt = served.engine.decoded(served.engine.submits()[-1])
    assert (status, second["type"]) == (200, "message")
    assert '{"name": "weather", "arguments": {"city": "Oslo"}}' in prompt
    assert prompt.index("Weather?") < prompt.index('"Oslo"') < prompt.index("rain 🌧")


async def test_tools_are_counted(served: Served) -> None:
    """As the prompt of a reply has them."""
    body = asking("x")
    _, reply = await served.answer(MESSAGES, body)
    _, count = await served.answer(COUNT, body)
    _, bare = await served.answer(COUNT, {"messages": body["messages"]})
    assert count["input_tokens"] == reply["usage"]["input_tokens"] > bare["input_tokens"] + 50


async def test_choices_reach_the_engine(served: Served) -> None:
    """any and tool as grammars; auto leaves the model free; none tells it of no tool."""
    for choice, has_grammar in (({"type": "any"}, True), ({"type": "tool", "name": "now"}, True), (None, False)):
        await served.answer(MESSAGES, asking(NOW, tool_choice=choice))
        assert (served.engine.submits()[-1].grammar is not None) == has_grammar
    blocks, reason = await both(served, asking(CALL, tool_choice={"type": "none"}))
    assert (blocks, reason) == ([{"type": "text", "text": CALL}], "end_turn")
    assert "weather" not in served.engine.decoded(served.engine.submits()[-1]).partition("!echo")[0]


async def test_one_call_where_one_is_asked_for(served: Served) -> None:
    """disable_parallel_tool_use: the row ends with the first call."""
    body = asking(f"{CALL} {NOW}", tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    _, whole = await served.answer(MESSAGES, body)
    assert [block["name"] for block in whole["content"]] == ["weather"]
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("tool_use", None)
    await until(lambda: [cancel.reason for cancel in served.engine.cancels()] == ["stop"], "the row is cancelled")


async def test_a_call_that_is_cut(served: Served) -> None:
    """Streamed as far as it came; whole under a name that no tool has."""
    _, whole = await served.answer(MESSAGES, asking(CALL))
    body = asking(CALL, max_tokens=whole["usage"]["output_tokens"] - 20)
    _, cut = await served.answer(MESSAGES, body)
    found = await streamed(served, body)
    assert cut["stop_reason"] == found.end["stop_reason"] == "max_tokens"
    assert cut["content"][0]["input"] == {"INVALID_JSON": "".join(found.pieces[0])}


async def test_a_stop_sequence_after_a_call(served: Served) -> None:
    """The calls are the end that counts."""
    _, whole = await served.answer(MESSAGES, asking(f"{CALL} the end", stop_sequences=["end"]))
    assert [block["type"] for block in whole["content"]] == ["tool_use", "text"]
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("tool_use", None)


async def test_a_model_that_cannot_think_says_so(served: Served) -> None:
    """By the fields that its template does not read."""
    body = asking("x", thinking={"type": "adaptive"}, output_config={"effort": "low"})
    async with await served.post(MESSAGES, body) as response:
        assert response.status == 200
        assert response.headers["x-convoy-ignored"] == "thinking, output_config.effort"


async def test_thinking_is_a_block_of_its_own(thinker: Served) -> None:
    """Before the text; with display omitted its text is in the signature, from where the next turn has it."""
    body = asking(f"<think>Rain?</think>Let me see. {CALL}", thinking={"type": "enabled", "budget_tokens": 1_024})
    blocks, reason = await both(thinker, body)
    call = {"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}}
    assert blocks == [
        {"type": "thinking", "thinking": "Rain?", "signature": "convoy"},
        {"type": "text", "text": "Let me see. "},
        call,
    ]
    assert reason == "tool_use"
    hidden, _ = await both(thinker, {**body, "thinking": {"type": "adaptive", "display": "omitted"}})
    assert hidden == [
        {"type": "thinking", "thinking": "", "signature": "convoy:UmFpbj8="},
        {"type": "text", "text": "Let me see. "},
        call,
    ]


async def test_thinking_can_be_switched_off(thinker: Served) -> None:
    """The template is told."""
    await thinker.answer(MESSAGES, asking("x", thinking={"type": "disabled"}))
    await thinker.answer(MESSAGES, asking("x", thinking={"type": "adaptive"}))
    off, on = [thinker.engine.decoded(submit) for submit in thinker.engine.submits()]
    assert off.endswith("<think>\n\n</think>\n\n")
    assert on.endswith("assistant\n")


async def test_anthropics_client_reads_every_block(thinker: Served) -> None:
    """Reasoning, text and a call, as its own types; the tool's result goes back with them."""
    turns: list[Any] = [{"role": "user", "content": f"!echo <think>Rain?</think>Let me see. {CALL}"}]
    asked: Any = {"model": "fake-model", "max_tokens": 300, "tools": TOOLS, "thinking": {"type": "adaptive"}}
    async with AsyncAnthropic(base_url=thinker.url, api_key="any", max_retries=0) as client:
        whole = await client.messages.create(**asked, messages=turns)
        async with client.messages.stream(**asked, messages=turns) as stream:
            events = [event.type async for event in stream]
            streamed_message = await stream.get_final_message()
        for message in (whole, streamed_message):
            thought, said, call = message.content
            assert thought.type == "thinking"
            assert (thought.thinking, thought.signature) == ("Rain?", "convoy")
            assert said.type == "text"
            assert said.text == "Let me see. "
            assert call.type == "tool_use"
            assert (call.name, call.input, message.stop_reason) == ("weather", {"city": "Oslo"}, "tool_use")
        assert {"thinking", "signature", "text", "input_json"} <= set(events)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "wet"}]}
        turns += [{"role": "assistant", "content": streamed_message.content}, {"role": "user", "content": [result]}]
        answer = await client.messages.create(**asked, messages=turns)
        assert answer.stop_reason == "end_turn"
    assert "wet" in thinker.engine.decoded(thinker.engine.submits()[-1])
