"""Tool choices as grammars: compiled by llguidance, and held against calls that fit and calls that do not."""

import json
from typing import Any

import pytest

from frontend.dialects.base import NamedTool, Tool, ToolChoice
from frontend.errors import RequestError
from frontend.tool_grammar import HERMES, ToolCallFormat, tool_grammar
from protocol.errors import ErrorCode
from tests.fakes.grammars import takes

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool(name="weather", parameters=CITY), Tool(name="now"), Tool(name='odd"näme', parameters={}))
STRICT = (Tool(name="weather", parameters=CITY, is_strict=True), Tool(name="now"))
PIPES = ToolCallFormat(begin="[TOOL/CALLS]", end="", separator=";", name_key="function", arguments_key="parameters")


def call(name: str, arguments: Any) -> str:
    """A call as a Hermes model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def fits(tools: tuple[Tool, ...], choice: ToolChoice, text: str, **options: Any) -> bool:
    """Whether a reply is one that the grammar allows, to its end."""
    grammar = tool_grammar(tools, choice, options.pop("call_format", HERMES), **options)
    assert grammar is not None
    return takes(grammar.kind, grammar.text, text)


GOOD = call("weather", {"city": "Oslo", "days": 3})


@pytest.mark.parametrize(
    ("text", "is_fit"),
    [
        (GOOD, True),
        (call("weather", {"city": "Oslo"}), True),
        (call("now", {}), True),
        (call("now", {"any": [1, {"thing": None}]}), True),
        (call('odd"näme', {"x": 1}), True),
        (GOOD + "\n" + call("now", {}), True),
        ("", False),
        ("It is sunny.", False),
        ("Let me see. " + GOOD, False),
        (GOOD + "Done.", False),
        (call("weather", {"days": 3}), False),
        (call("weather", {"city": "Oslo", "days": 8}), False),
        (call("weather", {"city": "Oslo", "zip": 1}), False),
        (call("forecast", {}), False),
        (call("now", []), False),
        (GOOD.removesuffix("</tool_call>"), False),
    ],
)
def test_required_is_one_call_or_several(text: str, is_fit: bool) -> None:
    """Of any tool, each with arguments of its own schema, and nothing else."""
    assert fits(TOOLS, "required", text) == is_fit


def test_a_named_tool_is_called_once() -> None:
    """That one, and no other."""
    assert fits(TOOLS, NamedTool("weather"), GOOD)
    assert not fits(TOOLS, NamedTool("weather"), call("now", {}))
    assert not fits(TOOLS, NamedTool("weather"), GOOD + "\n" + GOOD)


def test_without_parallel_calls_there_is_one() -> None:
    """parallel_tool_calls false."""
    assert fits(TOOLS, "required", GOOD, is_parallel=False)
    assert not fits(TOOLS, "required", GOOD + "\n" + GOOD, is_parallel=False)
    assert fits(STRICT, "auto", "Hm. " + GOOD + " ok", is_parallel=False)


@pytest.mark.parametrize(
    ("text", "is_fit"),
    [
        ("", True),
        ("It is sunny,\nI think: <tool> {}", True),
        ("Let me see. " + GOOD, True),
        (GOOD + "\n" + call("now", {"free": 1}), True),
        (GOOD + " and so on", True),
        (call("weather", {"days": 3}), False),
        ("Well: " + call("weather", {"city": "Oslo", "days": 8}), False),
        ("Well: " + call("forecast", {}), False),
        (GOOD + "\n" + call("weather", {}), False),
    ],
)
def test_strict_tools_leave_text_free_and_bind_calls(text: str, is_fit: bool) -> None:
    """With `auto` the model may talk; a call that it begins must fit, of strict tools to the letter."""
    assert fits(STRICT, "auto", text) == is_fit


def test_auto_without_strict_tools_and_none_are_free() -> None:
    """No grammar at all."""
    assert tool_grammar(TOOLS, "auto", HERMES) is None
    assert tool_grammar(STRICT, "none", HERMES) is None


def test_another_format() -> None:
    """Markers and keys are the format's own."""
    text = '[TOOL/CALLS]{"function": "now", "parameters": {}}'
    assert fits(TOOLS, "required", f"{text};{text}", call_format=PIPES)
    assert not fits(TOOLS, "required", GOOD, call_format=PIPES)
    assert fits(STRICT, "auto", "so " + text, call_format=PIPES)


@pytest.mark.parametrize(("tools", "choice"), [((), "required"), (TOOLS, NamedTool("gone"))])
def test_a_choice_that_no_tool_serves_is_refused(tools: tuple[Tool, ...], choice: ToolChoice) -> None:
    """By name."""
    with pytest.raises(RequestError) as caught:
        tool_grammar(tools, choice, HERMES)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, "tool_choice")
