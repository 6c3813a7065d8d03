"""Whole requests as coding agents send them: every field is taken, nothing is ignored, and the prompt is right."""

from pathlib import Path
from typing import Any

from frontend.dialects.anthropic import parse_message
from frontend.dialects.base import ChatPrompt, Generation
from tests.fakes.serving import serving

CACHED = {"cache_control": {"type": "ephemeral"}}
TOOL = {"description": "Does it.", "input_schema": {"$schema": "x", "type": "object", "properties": {}}}
BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "mid-conversation-tool-changes-2026-07-01,advanced-tool-use-2025-11-20,effort-2025-11-24"
)
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": BETAS,
    "anthropic-dangerous-direct-browser-access": "true",
    "x-api-key": "any",
    "x-app": "cli",
    "x-stainless-retry-count": "0",
}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def agent_request(*later: dict[str, Any], tools: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """The first turn of a session, and what follows it."""
    reminder = text("<system-reminder>\nIt is Monday.\n</system-reminder>")
    return {
        "model": "local-model",
        "metadata": {"user_id": '{"device_id":"0","session_id":"1"}'},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "system": [text("x-header: 1"), text("You help.", **CACHED), text("\nBe brief.", **CACHED)],
        "messages": [
            {"role": "user", "content": [reminder, text("List the files.")]},
            {"role": "system", "content": [text("# Environment\nlinux", **CACHED)]},
            *later,
        ],
        "tools": [
            {"name": "Bash", **TOOL},
            {"name": "ToolSearch", **TOOL},
            *({"name": tool["name"], **TOOL, **tool} for tool in tools),
            {"name": "Placeholder", **TOOL, "defer_loading": True},
        ],
        "stream": True,
    }


def prompt_of(generation: Generation) -> ChatPrompt:
    """The one prompt."""
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt


def tools_of(generation: Generation) -> list[str]:
    """The names of the offered tools."""
    assert generation.tools is not None
    return [tool.name for tool in generation.tools.tools]


def test_the_first_turn() -> None:
    """System blocks are one text, a system message at the end is part of the user's turn, placeholders are no tools."""
    generation = parse_message(agent_request())
    assert generation.ignored == ()
    assert list(prompt_of(generation).messages) == [
        {"role": "system", "content": "x-header: 1\nYou help.\n\nBe brief."},
        {
            "role": "user",
            "content": "<system-reminder>\nIt is Monday.\n</system-reminder>\nList the files.\n"
            "<system-reminder>\n# Environment\nlinux\n</system-reminder>",
        },
    ]
    assert tools_of(generation) == ["Bash", "ToolSearch"]
    assert generation.hides_reasoning


def test_the_turn_after_a_tool() -> None:
    """The beginning stays word for word what it was, whatever spelling the client has changed to."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    thought = {"type": "thinking", "thinking": "", "signature": "convoy:bHM/"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt", "is_error": False, **CACHED}
    later = ({"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]})
    body = agent_request(*later)
    body["messages"][1]["content"] = "# Environment\nlinux"
    generation = parse_message(body)
    messages = prompt_of(generation).messages
    assert generation.ignored == ()
    assert messages[:2] == prompt_of(parse_message(agent_request())).messages
    assert messages[2]["reasoning_content"] == "ls?"
    assert messages[3] == {"role": "tool", "content": "a.txt", "tool_call_id": "toolu_1", "name": "Bash"}


def test_a_tool_that_was_searched_for() -> None:
    """It is offered once a result refers to it."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "fetch"}}
    references = [{"type": "tool_reference", "tool_name": "Fetch"}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": references, **CACHED}
    later = ({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
    deferred = ({"name": "Fetch", "defer_loading": True},)
    assert tools_of(parse_message(agent_request(tools=deferred))) == ["Bash", "ToolSearch"]
    assert tools_of(parse_message(agent_request(*later, tools=deferred))) == ["Bash", "ToolSearch", "Fetch"]


async def test_it_is_served(runtime_dir: Path) -> None:
    """With an agent's headers and query, under a name of its own."""
    async with serving(runtime_dir, {"served_model_name": ("*",)}) as served:
        async with await served.post("/v1/messages?beta=true", agent_request(), headers=HEADERS) as response:
            raw = await response.read()
            assert response.status == 200
        assert raw.startswith(b"event: message_start\n")
        assert raw.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
