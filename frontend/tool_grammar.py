"""The grammar of tool calls: what a model must write for tool_choice, and may write for strict tools.

Pure functions over a description of a model's call format; which format a model has, and how its calls are read
back, is the parsers'.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frontend.dialects.base import NamedTool, Tool, ToolChoice
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar

_ANY_ARGUMENTS: Final = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFormat:
    """Calls as JSON objects between two markers, both plain text. separator: between two calls."""

    begin: str
    end: str
    separator: str = "\n"
    name_key: str = "name"
    arguments_key: str = "arguments"


# Of Hermes, and of Qwen's and SmolLM's templates.
HERMES: Final = ToolCallFormat(begin="<tool_call>\n", end="\n</tool_call>")


def tool_grammar(
    tools: Sequence[Tool], choice: ToolChoice, call_format: ToolCallFormat, *, is_parallel: bool = True
) -> Grammar | None:
    """The reply's grammar; None where the model is free. is_parallel: several calls may follow each other.

    `auto` constrains only if a tool is strict: text is free until a call begins, and the call must fit.
    Raises RequestError, with tool_choice as param, for a choice that the tools cannot serve.
    """
    match choice:
        case "none":
            return None
        case "auto":
            if not any(tool.is_strict for tool in tools):
                return None
            return _lark(_start_free(tools, call_format, is_parallel), tools, call_format, "auto")
        case "required":
            if not tools:
                raise _refused("`tool_choice` is required, and there are no tools")
            more = f" ({_quoted(call_format.separator)} call)*" if is_parallel else ""
            return _lark([f"start: call{more}", _calls(tools, call_format.begin)], tools, call_format, "required")
        case NamedTool(name=name):
            named = [tool for tool in tools if tool.name == name]
            if not named:
                raise _refused(f"`tool_choice` names {name}, and no tool has that name")
            return _lark(["start: call", _calls(named, call_format.begin)], named, call_format, "required")


def _start_free(tools: Sequence[Tool], call_format: ToolCallFormat, is_parallel: bool) -> list[str]:
    """Text up to a call's begin is one lazy lexeme: as soon as the begin is complete, the call's rules hold."""
    trigger = call_format.begin.rstrip()
    rest = call_format.begin[len(trigger) :]
    begin = re.escape(trigger).replace("/", "\\/")
    return [
        f"start: (before call){'*' if is_parallel else '?'} TEXT",
        f"before[lazy]: /(?s:.)*{begin}/",
        "TEXT: /(?s:.)*/",
        _calls(tools, rest),
    ]


def _calls(tools: Sequence[Tool], begin: str) -> str:
    calls = " | ".join(f"call_{index}" for index in range(len(tools)))
    return f"call: {_quoted(begin)} ({calls})" if begin else f"call: {calls}"


def _lark(head: list[str], tools: Sequence[Tool], call_format: ToolCallFormat, mode: str) -> Grammar:
    lines = ["%llguidance {}", *head]
    for index, tool in enumerate(tools):
        name, arguments = json.dumps(call_format.name_key), json.dumps(call_format.arguments_key)
        opening = f"{{{name}: {json.dumps(tool.name, ensure_ascii=False)}, {arguments}: "
        closing = "}" + call_format.end
        lines.append(f"call_{index}: {_quoted(opening)} arguments_{index} {_quoted(closing)}")
        is_bound = tool.is_strict or mode == "required"
        lines.append(f"arguments_{index}: %json {json.dumps(_schema(tool, is_bound), ensure_ascii=False)}")
    return Grammar(kind="lark", text="\n".join(lines) + "\n")


def _schema(tool: Tool, is_bound: bool) -> Mapping[str, object]:
    """With the separators that models are trained on: the client sees arguments that were read and written anew."""
    schema = tool.parameters if tool.parameters and is_bound else _ANY_ARGUMENTS
    spaced = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}
    return {**_ANY_ARGUMENTS, **schema, "x-guidance": spaced}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param="tool_choice")
