"""Anthropic's `tools` and `tool_choice`: which tools a request may call, and whether it must."""

from collections.abc import Mapping, Sequence
from typing import Final

from frontend.dialects.anthropic_blocks import ToolChange
from frontend.dialects.base import NamedTool, Tool, ToolChoice, ToolUse
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, check_fields
from frontend.dialects.values import as_list, as_object, as_text, read_bool, read_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

TOOL_FIELDS: Final[FieldTable] = {
    "type": Honoured("custom; a tool that Anthropic's servers run, or its models alone know, gets 400"),
    "name": Honoured(),
    "description": Honoured(),
    "input_schema": Honoured(),
    "strict": Honoured("calls fit the schema"),
    "cache_control": Harmless("no prefix is kept between requests"),
    "eager_input_streaming": Harmless("arguments are streamed as they are generated"),
    "defer_loading": Honoured("not in the prompt before a tool_reference or a tool_addition names it"),
    "allowed_callers": Named((["direct"],)),
    "input_examples": Named(([],)),
}
TOOL_CHOICE_FIELDS: Final[FieldTable] = {
    "type": Honoured("auto, any, tool or none"),
    "name": Honoured("with type tool"),
    "disable_parallel_tool_use": Honoured(),
}


def read_tools(
    body: Mapping[str, object], changes: Sequence[ToolChange] = ()
) -> tuple[ToolUse | None, tuple[str, ...]]:
    """The tools that are offered at the conversation's end, if any, and the names of what is ignored in them.

    changes: in the conversation. Raises RequestError.
    """
    ignored: dict[str, None] = {}
    offered = _offered(body.get("tools"), changes, ignored)
    asked = body.get("tool_choice")
    fields = {} if asked is None else as_object(asked, "tool_choice")
    ignored |= dict.fromkeys(check_fields(fields, TOOL_CHOICE_FIELDS, "tool_choice."))
    choice = "auto" if asked is None else _choice(fields, offered)
    name = "tool_choice.disable_parallel_tool_use"
    is_single = read_bool({name: fields.get("disable_parallel_tool_use")}, name, default=False)
    use = ToolUse(tools=tuple(offered.values()), choice=choice, is_parallel=not is_single) if offered else None
    return use, tuple(ignored)


def _offered(value: object, changes: Sequence[ToolChange], ignored: dict[str, None]) -> dict[str, Tool]:
    """By name, those of the beginning first."""
    items = [] if value is None else as_list(value, "tools")
    declared: dict[str, Tool] = {}
    offered: dict[str, Tool] = {}
    for index, item in enumerate(items):
        where = f"tools.{index}"
        tool = _tool(item, where, ignored)
        if tool.name in declared:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"`{where}.name` is {shown(tool.name)}, as of a tool before it", where
            )
        declared[tool.name] = tool
        deferred = f"{where}.defer_loading"
        if not read_bool({deferred: as_object(item, where).get("defer_loading")}, deferred, default=False):
            offered[tool.name] = tool
    for change in changes:
        if change.is_removal:
            offered.pop(change.name, None)
            continue
        if change.definition is not None:
            declared[change.name] = _tool(change.definition, change.where, ignored)
        # A result may name a tool that the client has taken away since.
        if change.name in declared:
            offered[change.name] = declared[change.name]
    return offered


def _tool(item: object, where: str, ignored: dict[str, None]) -> Tool:
    tool = as_object(item, where)
    kind = tool.get("type")
    if kind is not None and kind != "custom":
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{where}` is a tool of the type {shown(kind)}, which this server does not have: "
            "send tools of your own, with an input_schema",
            where,
        )
    names = check_fields(tool, TOOL_FIELDS, f"{where}.")
    ignored |= dict.fromkeys(f"tools[]{name.removeprefix(where)}" for name in names)
    name = as_text(tool.get("name"), f"{where}.name")
    if not name:
        raise wrong(f"{where}.name", name, "a string of at least one character")
    description, strict = f"{where}.description", f"{where}.strict"
    return Tool(
        name=name,
        description=read_text({description: tool.get("description")}, description),
        parameters=as_object(tool.get("input_schema"), f"{where}.input_schema"),
        is_strict=read_bool({strict: tool.get("strict")}, strict, default=False),
    )


def _choice(fields: Mapping[str, object], tools: Mapping[str, Tool]) -> ToolChoice:
    match fields.get("type"):
        case "auto":
            return "auto"
        case "none":
            return "none"
        case "any":
            choice: ToolChoice = "required"
        case "tool":
            choice = NamedTool(as_text(fields.get("name"), "tool_choice.name"))
        case other:
            raise wrong("tool_choice.type", other, "auto, any, tool or none")
    if not tools:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`tool_choice` needs `tools` to choose from", "tool_choice")
    if isinstance(choice, NamedTool) and choice.name not in tools:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`tool_choice.name` is {shown(choice.name)}, and no tool has this name",
            "tool_choice.name",
        )
    return choice
