"""Tools and reasoning of the Responses routes over a FakeEngine: calls go out, their outputs come back in."""

import json
from pathlib import Path
from typing import Any

from protocol.codec import unpack_ids
from tests.fakes.serving import Served, named_events, serving

RESPONSES = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Look.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HOME = {"type": "namespace", "name": "mcp__home", "description": "", "tools": [{"type": "function", "name": "light"}]}
PATCH = {"type": "custom", "name": "patch", "description": "Edit."}
CALL = '<tool_call> {"name": "weather", "arguments": {"city": "Oslo"}} </tool_call>'
THINKING = {"reasoning_parser": "think"}


async def whole(served: Served, reply: str, **fields: Any) -> dict[str, Any]:
    """A response that says this, a token a step."""
    status, body = await served.answer(RESPONSES, {"input": f"!echo {reply}", **fields})
    assert status == 200, body
    return body


async def streamed(served: Served, reply: str, **fields: Any) -> list[dict[str, Any]]:
    """The events of the same."""
    async with await served.post(RESPONSES, {"input": f"!echo {reply}", **fields, "stream": True}) as response:
        return named_events(await response.read())


def prompt_of(served: Served) -> str:
    """What the engine was sent last."""
    ids = unpack_ids(served.engine.submits()[-1].prompt.ids)
    return served.engine.tokenizer.decode(ids, skip_special_tokens=False)


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in output]


async def test_a_call_goes_out_and_its_output_comes_back(runtime_dir: Path) -> None:
    """Streamed and whole alike; the next turn has call and output, from the client or from the store."""
    async with serving(runtime_dir) as served:
        first = await whole(served, f"Well: {CALL}", tools=[WEATHER])
        events = await streamed(served, f"Well: {CALL}", tools=[WEATHER])
        assert without_ids(events[-1]["response"]["output"]) == without_ids(first["output"])
        message, call = first["output"]
        assert message["content"][0]["text"] == "Well: "
        assert (call["type"], call["name"], json.loads(call["arguments"])) == (
            "function_call",
            "weather",
            {"city": "Oslo"},
        )
        arguments = [event for event in events if event["type"] == "response.function_call_arguments.delta"]
        assert len(arguments) > 3
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain, 4 degrees"}
        asked = {"role": "user", "content": "Weather?"}
        prompts: list[str] = []
        for fields in (
            {"input": [asked, *first["output"], output]},
            {"input": [output], "previous_response_id": first["id"]},
        ):
            status, reply = await served.answer(RESPONSES, {"tools": [WEATHER], **fields})
            assert (status, reply["status"]) == (200, "completed")
            prompts.append(prompt_of(served).rpartition("Well: ")[2])
        assert "rain, 4 degrees" in prompts[0]
        assert "Oslo" in prompts[0]
        assert prompts[0] == prompts[1]


async def test_a_forced_call_that_is_cut_before_it_is_told_is_nothing(runtime_dir: Path) -> None:
    """An empty message that is incomplete, streamed or not."""
    async with serving(runtime_dir) as served:
        for count in (1, 4, 7):
            fields = {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": count}
            for response in (
                await whole(served, CALL, **fields),
                (await streamed(served, CALL, **fields))[-1]["response"],
            ):
                assert (response["status"], len(response["output"])) == ("incomplete", 1)
                assert response["output"][0]["status"] == "incomplete"
                assert [part["text"] for part in response["output"][0]["content"]] == [""]


async def test_a_call_that_breaks_is_text_where_the_reply_is_whole(runtime_dir: Path) -> None:
    """A stream has told its beginning already: there its item is incomplete."""
    async with serving(runtime_dir) as served:
        broken = '<tool_call> {"name": "weather", "arguments": {"city": Oslo}} </tool_call>'
        response = await whole(served, f"So: {broken}", tools=[WEATHER])
        assert [part["text"] for item in response["output"] for part in item["content"]] == [f"So: {broken}"]
        told = (await streamed(served, f"So: {broken}", tools=[WEATHER]))[-1]["response"]
        assert [(item["type"], item["status"]) for item in told["output"]] == [
            ("message", "completed"),
            ("function_call", "incomplete"),
            ("message", "completed"),
        ]
        assert (response["status"], told["status"]) == ("completed", "completed")


async def test_an_output_without_its_call_is_refused(runtime_dir: Path) -> None:
    """As OpenAI does."""
    async with serving(runtime_dir) as served:
        output = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
        status, reply = await served.answer(RESPONSES, {"input": [output]})
        assert (status, reply["error"]["param"]) == (400, "input[0]")


async def test_codexs_tools(runtime_dir: Path) -> None:
    """One in a namespace goes back under both names, a custom one as text; what cannot be offered is named."""
    async with serving(runtime_dir) as served:
        tools = [WEATHER, HOME, PATCH, {"type": "web_search", "external_web_access": False}]
        light = '<tool_call> {"name": "mcp__home__light", "arguments": {}} </tool_call>'
        patch = '<tool_call> {"name": "patch", "arguments": {"input": "*** Begin Patch\\n+x"}} </tool_call>'
        output = (await streamed(served, f"{light} {patch}", tools=tools))[-1]["response"]["output"]
        assert [(item["type"], item["name"], item.get("namespace")) for item in output] == [
            ("function_call", "light", "mcp__home"),
            ("custom_tool_call", "patch", None),
        ]
        assert output[1]["input"] == "*** Begin Patch\n+x"
        results = [
            {"type": "function_call_output", "call_id": output[0]["call_id"], "output": "on"},
            {"type": "custom_tool_call_output", "call_id": output[1]["call_id"], "output": "patched"},
        ]
        body = {"tools": tools, "input": [{"role": "user", "content": "Go."}, *output, *results]}
        async with await served.post(RESPONSES, body) as response:
            assert response.status == 200
            assert response.headers["x-convoy-ignored"] == "tools[].type=web_search"
            told = json.loads(await response.read())["tools"]
        assert told == tools[:-1]
        prompt = prompt_of(served)
        assert [prompt.count(text) for text in ("*** Begin Patch", "patched", '"mcp__home__light"')] == [1, 1, 2]


async def test_choices(runtime_dir: Path) -> None:
    """Required is a grammar, none leaves the tools out of the prompt, allowed tools are the only ones in it."""
    async with serving(runtime_dir) as served:
        other = {"type": "function", "name": "now"}
        await whole(served, CALL, tools=[WEATHER], tool_choice="required")
        grammar = served.engine.submits()[-1].grammar
        assert grammar is not None
        assert "call_0" in grammar.text
        await whole(served, "x", tools=[WEATHER], tool_choice="none")
        assert '"weather"' not in prompt_of(served)
        allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]}
        await whole(served, "x", tools=[WEATHER, other], tool_choice=allowed)
        assert ('"weather"' in prompt_of(served), '"now"' in prompt_of(served)) == (False, True)


async def test_a_call_that_is_cut_is_incomplete(runtime_dir: Path) -> None:
    """Its item, and the response."""
    async with serving(runtime_dir) as served:
        used = (await whole(served, CALL, tools=[WEATHER]))["usage"]["output_tokens"]
        cut = await whole(served, CALL, tools=[WEATHER], max_output_tokens=used - 20)
        assert cut["status"] == "incomplete"
        assert [(item["type"], item["status"]) for item in cut["output"]] == [("function_call", "incomplete")]


async def test_reasoning_comes_and_goes_back(runtime_dir: Path) -> None:
    """As it is, as a summary, or sealed alone; the next prompt is the same, and its tokens are counted."""
    async with serving(runtime_dir, THINKING) as served:
        text = "<think> Two cities. </think> Rain."
        raw = await whole(served, text)
        assert raw["output"][0]["content"] == [{"type": "reasoning_text", "text": "Two cities."}]
        assert raw["output"][1]["content"][0]["text"] == "Rain."
        counted = raw["usage"]
        assert 0 < counted["output_tokens_details"]["reasoning_tokens"] < counted["output_tokens"]
        asked = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        events = await streamed(served, text, **asked)
        told = events[-1]["response"]
        assert told["usage"] == counted
        assert told["output"][0]["summary"] == [{"type": "summary_text", "text": "Two cities."}]
        deltas = [event["delta"] for event in events if event["type"] == "response.reasoning_summary_text.delta"]
        assert "".join(deltas) == "Two cities."
        sealed = {**told["output"][0], "summary": []}
        assert "Two cities" not in json.dumps(sealed)
        prompts: set[str] = set()
        for items in (raw["output"], told["output"], [sealed, told["output"][1]]):
            fields = {"input": [{"role": "user", "content": "x"}, *items, {"role": "user", "content": "!echo y"}]}
            assert (await served.answer(RESPONSES, {**fields, "store": False}))[0] == 200
            prompts.add(prompt_of(served))
        assert len(prompts) == 1


async def test_an_effort_that_this_template_does_not_read_is_named(runtime_dir: Path) -> None:
    """And a word that is none is refused."""
    async with serving(runtime_dir) as served:
        body = {"input": "!echo x", "reasoning": {"effort": "low"}}
        async with await served.post(RESPONSES, body) as response:
            assert response.headers["x-convoy-ignored"] == "reasoning.effort"
        status, reply = await served.answer(RESPONSES, {"input": "x", "reasoning": {"effort": "some"}})
        assert (status, reply["error"]["param"]) == (400, "reasoning.effort")


async def test_log_probabilities_are_the_texts(runtime_dir: Path) -> None:
    """Tokens of a call have none to be told with, and begin no message."""
    async with serving(runtime_dir) as served:
        fields = {"tools": [WEATHER], "include": ["message.output_text.logprobs"]}
        reply = await whole(served, f"so {CALL}", **fields)
        assert [item["type"] for item in reply["output"]] == ["message", "function_call"]
        (part,) = reply["output"][0]["content"]
        assert "".join(entry["token"] for entry in part["logprobs"]).startswith("so ")
        last = (await streamed(served, f"so {CALL}", **fields))[-1]["response"]
        assert without_ids(last["output"]) == without_ids(reply["output"])


def codex_request(prompt: str, *further: dict[str, Any]) -> dict[str, Any]:
    """The fields that Codex 0.171 sends to a provider of `wire_api = "responses"`, with texts of our own."""

    def said(role: str, *texts: str) -> dict[str, Any]:
        parts = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "id": f"msg_{role}", "role": role, "content": parts}

    command = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    agents = {"type": "function", "name": "close_agent", "description": "End it.", "strict": False, "parameters": {}}
    return {
        "model": "fake-model",
        "stream": True,
        "input": [
            said("developer", "You are a coding agent."),
            said("developer", "<skills>none</skills>", "<permissions>read only</permissions>"),
            said("user", "<environment><cwd>project</cwd></environment>"),
            said("user", prompt),
            *further,
        ],
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Run.", "strict": False, "parameters": command},
            {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [agents]},
            {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "text"}},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a2",
        "client_metadata": {"session_id": "01a2", "x-codex-window-id": "01a2:0"},
        "text": {"verbosity": "low"},
    }


async def test_a_turn_as_codex_takes_it(runtime_dir: Path) -> None:
    """Thought, call, output, answer: its requests are taken, and its events are where it looks for them."""
    async with serving(runtime_dir, THINKING) as served:
        call = '<tool_call> {"name": "exec_command", "arguments": {"cmd": "ls"}} </tool_call>'
        prompt = f"!echo <think> I look. </think> {call}"
        async with await served.post(RESPONSES, codex_request(prompt)) as response:
            assert response.status == 200
            assert response.headers["x-convoy-ignored"] == "text.verbosity, tools[].type=web_search"
            events = named_events(await response.read())
        types = [event["type"] for event in events]
        assert "response.reasoning_summary_text.delta" in types
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert [item["type"] for item in done] == ["reasoning", "function_call"]
        assert types[-1] == "response.completed"
        assert set(events[-1]["response"]["usage"]) >= {"input_tokens", "output_tokens", "total_tokens"}
        output = {"type": "function_call_output", "call_id": done[1]["call_id"], "output": "made.txt"}
        # Codex leaves out what it has no use for.
        thought = {name: done[0][name] for name in ("type", "id", "summary", "encrypted_content")}
        async with await served.post(RESPONSES, codex_request(prompt, thought, done[1], output)) as response:
            assert response.status == 200
            assert named_events(await response.read())[-1]["type"] == "response.completed"
        assert "made.txt" in prompt_of(served)
        assert not (runtime_dir / "responses").exists()
