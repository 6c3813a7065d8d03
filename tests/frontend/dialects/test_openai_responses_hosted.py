"""Items of OpenAI's own tools in a history: each kind is told to the model, and no conversation ends by one."""

from typing import Any

import pytest

from frontend.dialects.base import ChatPrompt
from frontend.dialects.openai_responses import parse_responses
from frontend.dialects.openai_responses_hosted import HOSTED_ITEMS
from frontend.errors import RequestError
from protocol.errors import ErrorCode

USER = {"role": "user", "content": "Go on."}
IMAGE = "[image omitted: this model reads text only]"
SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBO"}
WEATHER = {"type": "function", "name": "weather", "parameters": {}}
SPACE = {"type": "namespace", "name": "home", "tools": [{"type": "function", "name": "light"}]}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    """One of them, as OpenAI sends it."""
    return {"type": kind, "id": "x_1", "status": "completed", **fields}


def parsed(*items: dict[str, Any], **fields: Any) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The messages for the template, and what is named as ignored."""
    generation = parse_responses({"input": list(items), **fields})
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    return list(prompt.messages), generation.ignored


# By their type: the rest of an item, what the assistant is told to have said, and what is named.
NOTES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "web_search_call": (
        {"action": {"type": "search", "query": "rain"}},
        '[called web_search: {"type":"search","query":"rain"}]',
        (),
    ),
    "file_search_call": (
        {"queries": ["rain", "snow"], "results": [{"filename": "a.md", "text": "It rains."}]},
        '[called file_search: rain\nsnow]\n[result of file_search: {"filename":"a.md","text":"It rains."}]',
        (),
    ),
    "code_interpreter_call": (
        {
            "code": "print(1)",
            "container_id": "c",
            "outputs": [{"type": "logs", "logs": "1"}, {"type": "image", "url": "http://x"}],
        },
        f"[called code_interpreter: print(1)]\n[result of code_interpreter: 1\n{IMAGE}]",
        ("input[].outputs.image",),
    ),
    "image_generation_call": (
        {"revised_prompt": "A fox.", "result": "iVBO", "size": "1024x1024"},
        f"[called image_generation: A fox.]\n{IMAGE}",
        ("input[].result",),
    ),
    "mcp_call": (
        {"server_label": "github", "name": "issues", "arguments": '{"open": true}', "output": "none", "error": None},
        '[called github.issues: {"open": true}]\n[result of github.issues: none]',
        (),
    ),
    "mcp_approval_request": (
        {"server_label": "github", "name": "drop", "arguments": "{}"},
        "[wants to call github.drop: {}]",
        (),
    ),
    "mcp_list_tools": (
        {"server_label": "github", "tools": [{"name": "issues"}]},
        "",
        ("input[].server_label", "input[].tools"),
    ),
    "program": ({"call_id": "p", "code": "f()", "fingerprint": "zz"}, "[called program: f()]", ()),
    "program_output": ({"call_id": "p", "result": "7"}, "[result of program: 7]", ()),
    "tool_search_call": ({"arguments": {"q": "x"}, "execution": "server"}, '[called tool_search: {"q":"x"}]', ()),
    "tool_search_output": (
        {"execution": "server", "tools": [WEATHER, SPACE]},
        "[result of tool_search: weather\nhome__light]",
        (),
    ),
    "compaction": (
        {"encrypted_content": "gAAA"},
        "[what was said before was summed up in a form that only its maker can read]",
        ("input[].encrypted_content",),
    ),
    # Newer than this server.
    "divination_call": ({"omen": "x"}, "[called divination]", ("input[].omen",)),
    "divination_call_output": ({"omen": "x"}, "", ("input[].omen",)),
}


@pytest.mark.parametrize("kind", NOTES)
def test_what_a_server_ran_is_a_note(kind: str) -> None:
    """In the assistant's turn, with what it came to; what cannot be told is named."""
    fields, expected, named = NOTES[kind]
    messages, ignored = parsed(USER, item(kind, **fields), {"role": "assistant", "content": "Done."}, USER)
    said = f"{expected}\n\nDone." if expected else "Done."
    assert messages == [USER, {"role": "assistant", "content": said}, USER]
    assert ignored == named


# By the type of the call: its arguments, those told to the template, its output, and the text of that.
PAIRS: dict[str, tuple[dict[str, Any], Any, Any, str]] = {
    "computer_call": ({"action": {"type": "wait"}, "pending_safety_checks": []}, {"type": "wait"}, SCREENSHOT, IMAGE),
    "local_shell_call": (
        {"action": {"type": "exec", "command": ["ls"]}},
        {"type": "exec", "command": ["ls"]},
        '{"stdout": "a"}',
        '{"stdout": "a"}',
    ),
    "shell_call": (
        {"action": {"commands": ["ls"]}},
        {"commands": ["ls"]},
        [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        '{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}',
    ),
    "apply_patch_call": (
        {"operation": {"type": "delete_file", "path": "a"}},
        {"type": "delete_file", "path": "a"},
        None,
        "completed",
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_what_the_client_ran_is_a_call_with_its_output(kind: str) -> None:
    """As of a function, so that the model answers the output."""
    fields, arguments, output, text = PAIRS[kind]
    name = kind.removesuffix("_call")
    call = item(kind, call_id="c_1", **fields)
    messages, ignored = parsed(USER, call, item(f"{kind}_output", call_id="c_1", output=output))
    told = {"type": "function", "id": "c_1", "function": {"name": name, "arguments": arguments}}
    assert messages == [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [told]},
        {"role": "tool", "tool_call_id": "c_1", "name": name, "content": text},
    ]
    assert ignored == (("input[].output.computer_screenshot",) if output is SCREENSHOT else ())


def test_every_kind_is_told() -> None:
    """Each type in the table is in one of these tests."""
    assert {*NOTES, *PAIRS, *(f"{kind}_output" for kind in PAIRS)} - {"divination_call", "divination_call_output"} == {
        *HOSTED_ITEMS
    }


def test_a_local_shells_output_names_its_call_by_either_id() -> None:
    """By `id`, as OpenAI's type has it, or as Codex does: as the output of a function."""
    call = item("local_shell_call", call_id="c_1", action={"type": "exec"})
    by_id = {"type": "local_shell_call_output", "output": "a"}
    for output in (
        {**by_id, "id": "c_1"},
        {**by_id, "id": "x_1"},
        {**by_id, "type": "function_call_output", "call_id": "c_1"},
    ):
        messages, _ = parsed(USER, call, output)
        assert messages[-1]["content"] == "a"


def test_a_search_of_tools_offers_what_it_found() -> None:
    """What the request offers itself stays as it is; a server's own tools are named."""
    search = item("tool_search_call", call_id="s", arguments={}, execution="client")
    tools = [{**WEATHER, "description": "found"}, SPACE, {"type": "mcp", "server_label": "x"}]
    found = item("tool_search_output", call_id="s", tools=tools)
    body = {"input": [USER, search, found], "tools": [{**WEATHER, "description": "own"}]}
    generation = parse_responses(body)
    assert generation.tools is not None
    assert [(tool.name, tool.description) for tool in generation.tools.tools] == [
        ("weather", "own"),
        ("home__light", None),
    ]
    assert generation.ignored == ("input[].tools[].type=mcp",)
    assert parsed(*body["input"], tools=body["tools"])[0][-1]["content"] == "weather\nhome__light"


def test_a_call_that_is_allowed_now_is_refused() -> None:
    """For it cannot be made; earlier words are told, and so is a refusal."""
    request = item("mcp_approval_request", server_label="github", name="drop", arguments="{}")
    answer = {"type": "mcp_approval_response", "approval_request_id": "x_1"}
    with pytest.raises(RequestError) as caught:
        parsed(USER, request, {**answer, "approve": True})
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "input[2]")
    allowed, _ = parsed(USER, request, {**answer, "approve": True}, USER)
    assert allowed[2]["content"] == "[the user allows the call]"
    refused, _ = parsed(USER, request, {**answer, "approve": False, "reason": "no"})
    assert refused[2] == {"role": "user", "content": "[the user does not allow the call: no]"}


@pytest.mark.parametrize("kind", ["compaction_trigger", "configuration_update", "mesage"])
def test_what_asks_for_something_else_is_refused(kind: str) -> None:
    """It is no history; the refusal says what to send."""
    with pytest.raises(RequestError) as caught:
        parsed(USER, {"type": kind})
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "input[1]")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"type": "computer_call_output", "call_id": "lost", "output": SCREENSHOT}, "input[0]"),
        ({"type": "shell_call", "call_id": 7}, "input[0].call_id"),
        ({"type": "mcp_call", "name": 7}, "input[0].name"),
        ({"type": "tool_search_output", "tools": "x"}, "input[0].tools"),
    ],
)
def test_malformed_items_are_named(fields: dict[str, Any], param: str) -> None:
    """By their place."""
    with pytest.raises(RequestError) as caught:
        parsed(fields, USER)
    assert (caught.value.param, caught.value.status) == (param, 400)
