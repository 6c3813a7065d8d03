"""The grammar of tool calls: what a model must write for tool_choice, and may write for strict tools.

Pure functions over a description of a model's call format; which format a model has, and how its calls are read
back, is the parsers'. How arguments between tags are bound is tagged_grammar's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frontend.answer_grammar import answer_rule
from frontend.dialects.base import Constraint, NamedTool, Tool, ToolChoice
from frontend.errors import RequestError
from frontend.lark import TEXT, Lark
from frontend.tagged_grammar import ArgumentTags, tagged_arguments
from frontend.thought_grammar import Thought, thought_rule
from protocol.errors import ErrorCode
from protocol.messages import Grammar

_ANY_ARGUMENTS: Final = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFormat:
    """How calls are written. begin, end: around each. separator: between two. section_begin, section_end: around all.

    A call is a JSON object with these keys. With a name_neck it is a name, as it is, then the neck, then the arguments
    as JSON or in tags; is_numbered: behind the name stand a colon and a number. is_single: a reply ends with its call.
    has_free_text: text may stand around calls as it is, without marks of its own.
    """

    begin: str
    end: str
    separator: str = "\n"
    name_key: str = "name"
    arguments_key: str = "arguments"
    section_begin: str = ""
    section_end: str = ""
    name_neck: str | None = None
    is_numbered: bool = False
    tags: ArgumentTags | None = None
    is_single: bool = False
    has_free_text: bool = True


# Of Hermes, and of Qwen's and SmolLM's templates.
HERMES: Final = ToolCallFormat(begin="<tool_call>\n", end="\n</tool_call>")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSetting:
    """What a grammar depends on beside the tools. tokens: ids of the marks that are tokens of their own, which text
    cannot spell. is_parallel: several calls may follow each other. answer: what a reply may be that need not call.
    """

    call_format: ToolCallFormat
    thought: Thought | None = None
    tokens: Mapping[str, int] | None = None
    is_parallel: bool = True
    answer: Constraint | None = None


def tool_grammar(tools: Sequence[Tool], choice: ToolChoice, setting: CallSetting) -> Grammar | None:
    """The reply's grammar; None where the model is free.

    `auto` constrains only if a tool is strict: text is free until a call begins, and the call must fit. With an answer
    the reply is that, or calls.
    Raises RequestError for a choice that the tools, or the format, cannot serve.
    """
    match choice:
        case "none":
            return None
        case "auto":
            if setting.answer is not None:
                return _grammar(tools, setting, is_forced=True)
            if not any(tool.is_strict for tool in tools):
                return None
            if not setting.call_format.has_free_text:
                raise RequestError(
                    ErrorCode.UNSUPPORTED,
                    "`tools`: this model's strict tools cannot be held with tool_choice auto: use tool_choice required",
                    "tools",
                )
            return _grammar(tools, setting, is_forced=False)
        case "required":
            if not tools:
                raise _refused("`tool_choice` is required, and there are no tools")
            return _grammar(tools, setting, is_forced=True)
        case NamedTool(name=name):
            named = [tool for tool in tools if tool.name == name]
            if not named:
                raise _refused(f"`tool_choice` names {name}, and no tool has that name")
            return _grammar(named, setting, is_forced=True, is_once=True)


def _grammar(tools: Sequence[Tool], setting: CallSetting, *, is_forced: bool, is_once: bool = False) -> Grammar:
    call_format = setting.call_format
    lark = Lark(setting.tokens or {})
    mark, end = call_format.section_begin + call_format.begin, lark.literal(call_format.section_end)
    more = f"({lark.literal(call_format.separator)} {lark.literal(call_format.begin)} call)*"
    if is_once or call_format.is_single or not setting.is_parallel:
        more = ""
    thought = thought_rule(lark, setting.thought)
    if is_forced:
        answer = "" if setting.answer is None else f"| {answer_rule(lark, setting.answer)}"
        lark.rule("start", f"{thought} ({lark.literal(mark)} call {more} {end} {answer})")
    else:
        before = lark.text_up_to(mark)
        # Without a section each call has a mark of its own, and text may stand before it.
        calls = f"call {more}" if call_format.section_begin else "call"
        again = "*" if setting.is_parallel else "?"
        lark.rule("start", f"{thought} ({before.expression} {lark.literal(before.rest)} {calls} {end}){again} {TEXT}")
    lark.rule("call", " | ".join(f"call_{index}" for index in range(len(tools))))
    for index, tool in enumerate(tools):
        _add_call(lark, index, tool, call_format, is_bound=tool.is_strict or is_forced)
    return Grammar(kind="lark", text=lark.text())


def _add_call(lark: Lark, index: int, tool: Tool, call_format: ToolCallFormat, *, is_bound: bool) -> None:
    arguments = f"arguments_{index}"
    end = lark.literal(call_format.end)
    if call_format.name_neck is None:
        name, key = json.dumps(call_format.name_key), json.dumps(call_format.arguments_key)
        opening = f"{{{name}: {json.dumps(tool.name, ensure_ascii=False)}, {key}: "
        lark.rule(f"call_{index}", f"{lark.literal(opening)} {arguments} {lark.literal('}')} {end}")
    else:
        number = "NUMBER" if call_format.is_numbered else ""
        neck = lark.literal(call_format.name_neck)
        lark.rule(f"call_{index}", f"{lark.literal(tool.name)} {number} {neck} {arguments} {end}")
    if call_format.tags is None:
        lark.json(arguments, _schema(tool, is_bound))
    else:
        tagged_arguments(lark, arguments, tool, call_format.tags)


def _schema(tool: Tool, is_bound: bool) -> Mapping[str, object]:
    schema = tool.parameters if tool.parameters and is_bound else _ANY_ARGUMENTS
    return {**_ANY_ARGUMENTS, **schema}


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param="tool_choice")
