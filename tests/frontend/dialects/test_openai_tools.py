"""Tools, tool choices and template variables of chat bodies: read, refused by name, or named as ignored."""

from typing import Any

import pytest

from frontend.dialects.base import ChatPrompt, Generation, NamedTool, Tool, ToolUse
from frontend.dialects.openai_chat import parse_chat
from frontend.errors import RequestError
from protocol.errors import ErrorCode

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "It rains.", "parameters": SCHEMA}}
NOW = {"type": "function", "function": {"name": "now", "strict": True}}


def parsed(**fields: Any) -> Generation:
    """Of a body with one message."""
    return parse_chat({"messages": [{"role": "user", "content": "Hi"}], **fields})


def refused(**fields: Any) -> RequestError:
    """The error that a body is answered with."""
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    assert caught.value.status == 400
    return caught.value


def test_tools_arrive() -> None:
    """With all that is said of them, free to be called several at once."""
    assert parsed(tools=[WEATHER, NOW]).tools == ToolUse(
        tools=(Tool(name="weather", description="It rains.", parameters=SCHEMA), Tool(name="now", is_strict=True))
    )


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_are_none(tools: object) -> None:
    """With what says how they are used taken, as clients send it always."""
    assert parsed(tools=tools, tool_choice="auto", parallel_tool_calls=True).tools is None
    assert parsed(tools=tools, tool_choice="none").tools is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "now"}}, NamedTool("now")),
    ],
)
def test_a_choice_arrives(choice: object, expected: object) -> None:
    """Each of OpenAI's."""
    use = parsed(tools=[WEATHER, NOW], tool_choice=choice, parallel_tool_calls=False).tools
    assert use is not None
    assert (use.choice, use.is_parallel) == (expected, False)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones(mode: str) -> None:
    """The others are not told."""
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "now"}}]}
    use = parsed(tools=[WEATHER, NOW], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}).tools
    assert use == ToolUse(tools=(Tool(name="now", is_strict=True),), choice=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [3]}, "tools[0]"),
        ({"tools": [WEATHER, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]}, "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, "tools[0].function.strict"),
        ({"tools": [NOW, NOW]}, "tools[1]"),
        ({"tools": [NOW] * 2_000}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": {"type": "function", "function": {"name": "now"}}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": 3}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "custom"}}, "tool_choice.type"),
        ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
        (
            {"tools": [NOW], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}},
            "tool_choice.allowed_tools.tools",
        ),
        ({"tools": [NOW], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"enable_thinking": "yes"}, "enable_thinking"),
        ({"include_reasoning": 0}, "include_reasoning"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is(fields: dict[str, Any], param: str) -> None:
    """The param is the path to the value."""
    error = refused(**fields)
    assert error.param == param
    assert f"`{param.partition('[')[0].partition('.')[0]}" in error.message


def test_unknown_fields_of_tools_are_named_once() -> None:
    """However many tools repeat them."""
    tools = [
        {"type": "function", "cache_control": {}, "function": {"name": name, "examples": []}} for name in ("a", "b")
    ]
    assert parsed(tools=tools).ignored == ("tools[].cache_control", "tools[].function.examples")


def test_unknown_fields_of_a_choice_are_named() -> None:
    """Of the choice, of the list of allowed ones, and of what they name."""
    function = {"name": "now", "strict": True}
    chosen = {"type": "function", "function": function, "x": 1}
    assert parsed(tools=[NOW], tool_choice=chosen).ignored == ("tool_choice.x", "tool_choice.function.strict")
    allowed = {"mode": "auto", "y": 2, "tools": [{"type": "function", "function": function, "z": 3}]}
    path = "tool_choice.allowed_tools"
    assert parsed(tools=[NOW], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}).ignored == (
        f"{path}.y",
        f"{path}.tools[].z",
        f"{path}.tools[].function.strict",
    )


def test_variables_arrive_and_the_more_particular_field_wins() -> None:
    """Each with the field that asked for it."""
    prompt = parsed(
        reasoning_effort="none", enable_thinking=True, chat_template_kwargs={"thinking": 1, "style": "x"}
    ).prompts[0]
    assert isinstance(prompt, ChatPrompt)
    assert prompt.variables == {
        "reasoning_effort": "none",
        "enable_thinking": True,
        "thinking": 1,
        "style": "x",
    }
    assert prompt.asked_by == {
        "reasoning_effort": ("reasoning_effort", "enable_thinking", "thinking"),
        "enable_thinking": ("enable_thinking", "thinking"),
        "chat_template_kwargs.thinking": ("thinking",),
        "chat_template_kwargs.style": ("style",),
    }


def test_reasoning_can_be_left_out() -> None:
    """vLLM's include_reasoning."""
    assert [parsed(include_reasoning=value).hides_reasoning for value in (None, True, False)] == [False, False, True]


def test_functions_are_refused_with_what_to_send() -> None:
    """OpenAI has replaced them long since."""
    error = refused(functions=[{"name": "a"}])
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, "functions")
    assert "send them as `tools`" in error.message
