"""Tools, reasoning and template variables of OpenAI's chat completions, with vLLM's and llama.cpp's additions.

Owns these fields of the request; how calls are told is openai_chat's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frontend.dialects.base import NamedTool, Tool, ToolChoice, ToolUse
from frontend.dialects.fields import (
    MAX_NAME_LENGTH,
    FieldTable,
    Harmless,
    Honoured,
    NeutralOnly,
    check_fields,
    check_nested,
)
from frontend.dialects.values import as_list, as_object, as_text, read_bool, read_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MAX_TOOLS: Final = 1_024

TOOL_FIELDS: Final[FieldTable] = {
    "tools": Honoured("functions; for a template without tools they are told in a system message"),
    "tool_choice": Honoured("none, auto, required, a function, or allowed_tools"),
    "parallel_tool_calls": Honoured("false: the reply ends with its first call"),
    "functions": NeutralOnly(([],), "send them as `tools`: leave it out"),
    "function_call": NeutralOnly(("none", "auto"), "send it as `tool_choice`: leave it out"),
    "reasoning_effort": Honoured("given to the template; none switches thinking off where the template can"),
    "enable_thinking": Honoured("given to the template"),
    "include_reasoning": Honoured("false: reasoning is left out of the reply"),
    "thinking_token_budget": NeutralOnly(advice="reasoning is not bounded by itself: use max_tokens, or leave it out"),
    "chat_template_kwargs": Honoured("given to the template; a name that it does not read is told as ignored"),
}

TOOL_ITEM_FIELDS: Final[FieldTable] = {"type": Honoured("function"), "function": Honoured()}
FUNCTION_FIELDS: Final[FieldTable] = {
    "name": Honoured(),
    "description": Honoured(),
    "parameters": Honoured("a JSON schema"),
    "strict": Honoured("true: the model's calls of it fit its schema"),
    "returns": Harmless("templates are not given it"),
}
CHOICE_FIELDS: Final[FieldTable] = {
    "type": Honoured("function or allowed_tools"),
    "function": Honoured(),
    "allowed_tools": Honoured(),
}
ALLOWED_FIELDS: Final[FieldTable] = {"mode": Honoured("auto or required"), "tools": Honoured()}
NAMED_FIELDS: Final[FieldTable] = {"name": Honoured()}

_CHOICE_EXPECTED: Final = '"none", "auto", "required" or an object with a function\'s name'
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_THINKING: Final = ("enable_thinking", "thinking")
# The roles that messages have once they are read, and what ends each.
_MAPPED: Final = ("system", "user", "assistant", "tool", "stop")
_RESERVED: Final = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")


@dataclass(frozen=True, slots=True)
class ReadTools:
    """use: None without tools. ignored: names inside the fields that have no effect."""

    use: ToolUse | None = None
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadVariables:
    """What ChatPrompt has of the same names. ignored: names that no template is given."""

    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asked_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    ignored: tuple[str, ...] = ()


def read_tools(body: Mapping[str, object]) -> ReadTools:
    """A body's tools and what it says of their use. Raises RequestError naming the tool by its index."""
    is_parallel = read_bool(body, "parallel_tool_calls", default=True)
    value = body.get("tools")
    items = [] if value is None else as_list(value, "tools")
    if len(items) > MAX_TOOLS:
        raise wrong("tools", len(items), f"at most {MAX_TOOLS} tools")
    ignored: dict[str, None] = {}
    tools = tuple(_tool(item, f"tools[{index}]", ignored) for index, item in enumerate(items))
    _check_names(tools)
    choice = body.get("tool_choice")
    if not tools:
        if choice not in (None, "none", "auto"):
            raise _invalid(f"`tool_choice` is {shown(choice)}, and there are no `tools` to choose from", "tool_choice")
        return ReadTools(None, tuple(ignored))
    use = _chosen(choice, ToolUse(tools=tools, is_parallel=is_parallel), ignored)
    return ReadTools(use, tuple(ignored))


def read_variables(body: Mapping[str, object]) -> ReadVariables:
    """Variables for the chat template; of two fields that set the same, the more particular wins."""
    variables: dict[str, Any] = {}
    asked_by: dict[str, tuple[str, ...]] = {}
    effort = effort_variables(read_text(body, "reasoning_effort"), "reasoning_effort")
    variables |= effort.variables
    asked_by |= effort.asked_by
    if body.get("enable_thinking") is not None:
        variables |= dict.fromkeys(_THINKING, read_bool(body, "enable_thinking", default=True))
        asked_by["enable_thinking"] = _THINKING
    kwargs = body.get("chat_template_kwargs")
    for name, value in as_object({} if kwargs is None else kwargs, "chat_template_kwargs").items():
        if name in _RESERVED:
            where = f"chat_template_kwargs.{name}"
            raise RequestError(ErrorCode.UNSUPPORTED, f"`{where}` is set by the server: leave it out", where)
        variables[name] = value
        asked_by[f"chat_template_kwargs.{name}"] = (name,)
    return ReadVariables(variables, asked_by)


def read_role_mapping(value: object) -> ReadVariables:
    """mlx_lm.server's words for each role; an empty map is none. Raises RequestError."""
    where = "role_mapping"
    words = as_object({} if value is None else value, where)
    if not words:
        return ReadVariables()
    speakers = {role: as_text(text, f"{where}.{role}") for role, text in words.items()}
    unknown = tuple(f"{where}.{role[:MAX_NAME_LENGTH]}" for role in speakers if role not in _MAPPED)
    return ReadVariables({where: speakers}, {where: (where,)}, unknown)


def effort_variables(effort: str | None, field: str) -> ReadVariables:
    """Variables for a reasoning effort, under whatever name it came. Raises RequestError."""
    if effort is None:
        return ReadVariables()
    if effort not in EFFORTS:
        raise wrong(field, effort, "one of " + ", ".join(EFFORTS))
    variables = {"reasoning_effort": effort, **dict.fromkeys(_THINKING, effort != "none")}
    return ReadVariables(variables, {field: ("reasoning_effort", *_THINKING)})


def _tool(value: object, where: str, ignored: dict[str, None]) -> Tool:
    item = as_object(value, where)
    kind = item.get("type", "function")
    if kind != "function":
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{where}.type` is {shown(kind)}: this server runs no tools of its own, send functions",
            f"{where}.type",
        )
    if "function" not in item and "name" in item:
        raise _invalid(
            f"`{where}.function` is missing: in a chat a function's name and parameters stand in it, "
            "not beside its type as in the Responses API",
            f"{where}.function",
        )
    function = as_object(item.get("function"), f"{where}.function")
    # Named without the index: a list of tools repeats them.
    ignored |= dict.fromkeys(check_fields(item, TOOL_ITEM_FIELDS, "tools[]."))
    ignored |= dict.fromkeys(check_fields(function, FUNCTION_FIELDS, "tools[].function."))
    path = f"{where}.function"
    named = {f"{path}.{field}": content for field, content in function.items()}
    name = as_text(function.get("name"), f"{path}.name")
    if not name:
        raise wrong(f"{path}.name", name, "a string that is not empty")
    parameters = function.get("parameters")
    return Tool(
        name=name,
        description=read_text(named, f"{path}.description"),
        parameters=None if parameters is None else as_object(parameters, f"{path}.parameters"),
        is_strict=read_bool(named, f"{path}.strict", default=False),
    )


def _check_names(tools: tuple[Tool, ...]) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise _invalid(f"`tools[{index}].function.name` is {tool.name}, as another tool's", f"tools[{index}]")
        seen.add(tool.name)


def _chosen(value: object, use: ToolUse, ignored: dict[str, None]) -> ToolUse:
    match value:
        case None | "auto":
            return use
        case "none":
            return replace(use, choice="none")
        case "required" | "any":
            return replace(use, choice="required")
        case str():
            raise wrong("tool_choice", value, _CHOICE_EXPECTED)
        case _:
            return _chosen_by_object(as_object(value, "tool_choice"), use, ignored)


def _chosen_by_object(value: dict[str, object], use: ToolUse, ignored: dict[str, None]) -> ToolUse:
    ignored |= check_nested(value, CHOICE_FIELDS, "tool_choice")
    match value.get("type"):
        case "function":
            function = as_object(value.get("function"), "tool_choice.function")
            ignored |= check_nested(function, NAMED_FIELDS, "tool_choice.function")
            name = as_text(function.get("name"), "tool_choice.function.name")
            _check_known(name, use, "tool_choice.function.name")
            return replace(use, choice=NamedTool(name))
        case "allowed_tools":
            return _allowed(as_object(value.get("allowed_tools"), "tool_choice.allowed_tools"), use, ignored)
        case other:
            raise wrong("tool_choice.type", other, '"function" or "allowed_tools"')


def _allowed(value: dict[str, object], use: ToolUse, ignored: dict[str, None]) -> ToolUse:
    """The model is told of the allowed ones only."""
    where = "tool_choice.allowed_tools"
    ignored |= check_nested(value, ALLOWED_FIELDS, where)
    names: set[str] = set()
    for index, given in enumerate(as_list(value.get("tools"), f"{where}.tools")):
        path = f"{where}.tools[{index}]"
        item = as_object(given, path)
        ignored |= check_nested(item, TOOL_ITEM_FIELDS, path)
        function = as_object(item.get("function"), f"{path}.function")
        ignored |= check_nested(function, NAMED_FIELDS, f"{path}.function")
        name = as_text(function.get("name"), f"{path}.function.name")
        _check_known(name, use, f"{path}.function.name")
        names.add(name)
    if not names:
        raise wrong(f"{where}.tools", [], "an array of at least one tool")
    mode = value.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise wrong(f"{where}.mode", mode, '"auto" or "required"')
    choice: ToolChoice = "required" if mode == "required" else "auto"
    return replace(use, tools=tuple(tool for tool in use.tools if tool.name in names), choice=choice)


def _check_known(name: str, use: ToolUse, where: str) -> None:
    if all(tool.name != name for tool in use.tools):
        raise _invalid(f"`{where}` is {name}, and no tool has that name", where)


def _invalid(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param)
