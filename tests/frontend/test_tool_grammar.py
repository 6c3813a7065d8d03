"""Tool choices as grammars: compiled by llguidance, and held against calls that fit and calls that do not."""

import json
from typing import Any

import pytest

from frontend.dialects.base import NamedTool, Tool, ToolChoice
from frontend.errors import RequestError
from frontend.thought_grammar import Thought
from frontend.tool_grammar import HERMES, CallSetting, ToolCallFormat, tool_grammar
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
    grammar = tool_grammar(tools, choice, CallSetting(**{"call_format": HERMES, **options}))
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
    assert tool_grammar(TOOLS, "auto", CallSetting(call_format=HERMES)) is None
    assert tool_grammar(STRICT, "none", CallSetting(call_format=HERMES)) is None


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
        tool_grammar(tools, choice, CallSetting(call_format=HERMES))
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, "tool_choice")


THINK = Thought("<think>", "</think>")


@pytest.mark.parametrize(
    ("thought", "text", "is_fit"),
    [
        (THINK, GOOD, True),
        (THINK, "<think>\nHm, <b>.\n</think>\n\n" + GOOD, True),
        (THINK, "<think>Hm. " + GOOD, False),
        (THINK, "Hm.</think>" + GOOD, False),
        (Thought("<think>", "</think>", is_open=True), "Hm.\n</think>\n" + GOOD, True),
        (Thought("<think>", "</think>", is_open=True), GOOD, False),
    ],
)
def test_a_model_may_think_before_a_call_it_must_make(thought: Thought, text: str, is_fit: bool) -> None:
    """And must end what the prompt has opened, or its call would be read as a thought."""
    assert fits(TOOLS, "required", text, thought=thought) == is_fit


def test_a_section_holds_all_calls() -> None:
    """Its marks stand once."""
    call_format = ToolCallFormat(begin="", end="", section_begin="<s>[", section_end="]</s>", separator=", ")
    one = '{"name": "now", "arguments": {}}'
    assert fits(TOOLS, "required", f"<s>[{one}, {one}]</s>", call_format=call_format)
    assert not fits(TOOLS, "required", f"<s>[{one}]</s><s>[{one}]</s>", call_format=call_format)
    assert fits(STRICT, "auto", f"so <s>[{one}, {one}]</s> and", call_format=call_format)
    assert not fits(STRICT, "auto", f"so <s>[{one}, x]</s> and", call_format=call_format)


def test_a_name_may_stand_before_its_arguments() -> None:
    """With a number, where the format has one; a reply ends with its call where it must."""
    call_format = ToolCallFormat(begin="<c>", name_neck="|", end="</c>", is_numbered=True, is_single=True)
    assert fits(TOOLS, "required", "<c>now:12|{}</c>", call_format=call_format)
    assert not fits(TOOLS, "required", "<c>now|{}</c>", call_format=call_format)
    assert not fits(TOOLS, "required", "<c>now:1|{}</c>\n<c>now:2|{}</c>", call_format=call_format)


def test_strict_tools_without_free_text_are_refused() -> None:
    """Where text has marks of its own, only a forced call can be held."""
    call_format = ToolCallFormat(begin="<c>", end="</c>", has_free_text=False)
    with pytest.raises(RequestError, match="tool_choice required"):
        tool_grammar(STRICT, "auto", CallSetting(call_format=call_format))
    assert fits(STRICT, "required", '<c>{"name": "now", "arguments": {}}</c>', call_format=call_format)
