"""The tools of a Responses request: which of them the model is offered, under which names, and how calls go back.

A call's text, its grammar and its parsing are not this module's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from frontend.dialects.base import NamedTool, Tool, ToolChoice, ToolUse
from frontend.dialects.fields import MAX_NAME_LENGTH, FieldTable, Harmless, Honoured, Named, check_nested, plain_path
from frontend.dialects.openai_messages import CUSTOM_INPUT
from frontend.dialects.openai_tools import MAX_TOOLS
from frontend.dialects.values import as_list, as_object, as_text, read_bool, read_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

_NAMESPACE_JOIN: Final = "__"
_CHOICES: Final[Mapping[str, ToolChoice]] = {"auto": "auto", "none": "none", "required": "required"}
_EXPECTED_CHOICE: Final = "auto, none, required, a function or custom tool by its name, or allowed_tools with a mode"

FUNCTION_FIELDS: Final[FieldTable] = {
    "type": Honoured("function"),
    "name": Honoured(),
    "description": Honoured(),
    "parameters": Honoured("a JSON schema; null is any object"),
    "strict": Honoured("true: the arguments fit the schema; left out: false"),
    "defer_loading": Named((False,)),
    "allowed_callers": Named((["direct"],)),
    "output_schema": Named(),
    "async": Named((False,)),
}
CUSTOM_FIELDS: Final[FieldTable] = {
    "type": Honoured("custom: offered as a function of one string"),
    "name": Honoured(),
    "description": Honoured(),
    "format": Honoured("a grammar is told to the model, and not enforced"),
    "defer_loading": Named((False,)),
    "allowed_callers": Named((["direct"],)),
    "async": Named((False,)),
}
NAMESPACE_FIELDS: Final[FieldTable] = {
    "type": Honoured("namespace: its tools are offered as namespace__name"),
    "name": Honoured(),
    "description": Harmless("each tool in it has its own"),
    "tools": Honoured("functions and custom tools"),
}
CHOICE_FIELDS: Final[FieldTable] = {
    "type": Honoured("function or custom"),
    "name": Honoured(),
    "namespace": Honoured("of the tool"),
}
ALLOWED_FIELDS: Final[FieldTable] = {
    "type": Honoured("allowed_tools"),
    "mode": Honoured("auto or required"),
    "tools": Honoured(),
}
# Codex declares these with every request; a reply that uses none of them is a right one.
_OWN_TYPES: Final = ("function", "custom", "namespace")
UNOFFERED_TYPES: Final = ("web_search", "tool_search", "image_generation")


class ToolOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """How the client knows a tool that the model calls by one name."""

    kind: Literal["function", "custom"] = "function"
    name: str
    namespace: str | None = None


@dataclass(slots=True, eq=False)
class OfferedTools:
    """The tools of a request as they are read. origins: by the name that the model uses."""

    tools: list[Tool] = field(default_factory=list[Tool])
    origins: dict[str, ToolOrigin] = field(default_factory=dict[str, ToolOrigin])
    told: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ignored: dict[str, None] = field(default_factory=dict[str, None])

    def read(self, value: object, where: str) -> None:
        """Takes an array of tools in. Raises RequestError for a type that cannot be served."""
        for index, item in enumerate(as_list(value, where)):
            tool = as_object(item, f"{where}[{index}]")
            if self._offer(tool, f"{where}[{index}]"):
                self.told.append(tool)

    def find(self, value: object, where: str) -> list[str]:
        """Offers what a search has found and is not offered yet; the names of all that a client runs."""
        found: list[str] = []
        for index, item in enumerate(as_list(value, where)):
            tool, place = as_object(item, f"{where}[{index}]"), f"{where}[{index}]"
            kind = as_text(tool.get("type"), f"{place}.type")
            if kind not in _OWN_TYPES:
                self.ignored[f"{plain_path(place)}.type={kind[:MAX_NAME_LENGTH]}"] = None
                continue
            space = _name(tool, place) if kind == "namespace" else None
            members = [tool] if space is None else as_list(tool.get("tools"), f"{place}.tools")
            for member in (as_object(each, place) for each in members):
                name = joined_name(_name(member, place), space)
                found.append(name)
                if name not in self.origins:
                    self._add(member, place, space)
        return found

    def use(self, choice: object, *, is_parallel: bool) -> ToolUse | None:
        """What the model may call. Raises RequestError for a choice that the tools cannot serve."""
        tools, chosen = self._chosen(choice)
        if not tools:
            if chosen == "required":
                raise _bad_choice("`tool_choice` is required, and there is no tool to call")
            return None
        return ToolUse(tools=tuple(tools), choice=chosen, is_parallel=is_parallel)

    def _offer(self, tool: Mapping[str, object], where: str) -> bool:
        kind = as_text(tool.get("type"), f"{where}.type")
        match kind:
            case "function" | "custom":
                self._add(tool, where, None)
            case "namespace":
                self.ignored |= check_nested(tool, NAMESPACE_FIELDS, where)
                space = as_text(tool.get("name"), f"{where}.name")
                for index, item in enumerate(as_list(tool.get("tools"), f"{where}.tools")):
                    inner = f"{where}.tools[{index}]"
                    self._add(as_object(item, inner), inner, space)
            case _ if kind.startswith(UNOFFERED_TYPES):
                self.ignored[f"tools[].type={kind}"] = None
                return False
            case _:
                raise RequestError(
                    ErrorCode.UNSUPPORTED,
                    f"`{where}` is a tool of the type {shown(kind)}, which this server cannot run: leave it out; "
                    "function, custom and namespace tools are served",
                    where,
                )
        return True

    def _add(self, tool: Mapping[str, object], where: str, space: str | None) -> None:
        """A function or a custom tool."""
        match tool.get("type"):
            case "function":
                self.ignored |= check_nested(tool, FUNCTION_FIELDS, where)
                origin = ToolOrigin(name=_name(tool, where), namespace=space)
                parameters = tool.get("parameters")
                schema = None if parameters is None else as_object(parameters, f"{where}.parameters")
                is_strict = read_bool(tool, "strict", default=False, within=f"{where}.")
            case "custom":
                self.ignored |= check_nested(tool, CUSTOM_FIELDS, where)
                origin = ToolOrigin(kind="custom", name=_name(tool, where), namespace=space)
                schema = self._custom_schema(tool.get("format"), f"{where}.format")
                is_strict = False
            case other:
                raise wrong(f"{where}.type", other, '"function" or "custom"')
        name = joined_name(origin.name, space)
        if len(self.tools) == MAX_TOOLS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"`{where}`: at most {MAX_TOOLS} tools are taken", where)
        if name in self.origins:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"`{where}`: there is a tool {shown(name)} already", where)
        self.origins[name] = origin
        description = read_text(tool, "description", f"{where}.")
        self.tools.append(Tool(name=name, description=description, parameters=schema, is_strict=is_strict))

    def _custom_schema(self, value: object, where: str) -> Mapping[str, object]:
        """One string. What form it must have is told to the model, for inside a JSON string no grammar holds."""
        hint = "The tool's whole input, as plain text."
        if value is not None:
            form = as_object(value, where)
            match form.get("type"):
                case "text":
                    pass
                case "grammar":
                    self.ignored["tools[].format"] = None
                    syntax = as_text(form.get("syntax"), f"{where}.syntax")
                    definition = as_text(form.get("definition"), f"{where}.definition")
                    hint += f" It must fit this {syntax} grammar:\n{definition}"
                case other:
                    raise wrong(f"{where}.type", other, '"text" or "grammar"')
        return {
            "type": "object",
            "properties": {CUSTOM_INPUT: {"type": "string", "description": hint}},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        }

    def _chosen(self, choice: object) -> tuple[Sequence[Tool], ToolChoice]:
        if choice is None:
            return self.tools, "auto"
        if isinstance(choice, str):
            if choice not in _CHOICES:
                raise wrong("tool_choice", choice, _EXPECTED_CHOICE)
            return self.tools, _CHOICES[choice]
        chosen = as_object(choice, "tool_choice")
        is_list = chosen.get("type") == "allowed_tools"
        self.ignored |= check_nested(chosen, ALLOWED_FIELDS if is_list else CHOICE_FIELDS, "tool_choice")
        match chosen.get("type"):
            case "function" | "custom":
                return self.tools, NamedTool(self._known(chosen, "tool_choice"))
            case "allowed_tools" if chosen.get("mode") in ("auto", "required"):
                return self._allowed(chosen), _CHOICES[as_text(chosen["mode"], "tool_choice.mode")]
            case _:
                raise wrong("tool_choice", choice, _EXPECTED_CHOICE)

    def _allowed(self, choice: Mapping[str, object]) -> list[Tool]:
        items = as_list(choice.get("tools"), "tool_choice.tools")
        if not items:
            raise wrong("tool_choice.tools", items, "an array of at least one tool")
        names: set[str] = set()
        for index, item in enumerate(items):
            where = f"tool_choice.tools[{index}]"
            allowed = as_object(item, where)
            self.ignored |= check_nested(allowed, CHOICE_FIELDS, where)
            names.add(self._known(allowed, where))
        return [tool for tool in self.tools if tool.name in names]

    def _known(self, chosen: Mapping[str, object], where: str) -> str:
        name = joined_name(_name(chosen, where), read_text(chosen, "namespace", f"{where}."))
        if name not in self.origins:
            raise _bad_choice(f"`{where}` names {shown(name)}, and no tool has that name")
        return name


def joined_name(name: str, namespace: str | None) -> str:
    """The one name by which the model knows a tool; that of a namespace may end in the joint already."""
    if namespace is None:
        return name
    return namespace.removesuffix(_NAMESPACE_JOIN) + _NAMESPACE_JOIN + name.removeprefix(_NAMESPACE_JOIN)


def _name(tool: Mapping[str, object], where: str) -> str:
    if "name" not in tool and "function" in tool:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`{where}.name` is missing: a function's fields stand beside its type, not in `function` as in chats",
            f"{where}.name",
        )
    name = as_text(tool.get("name"), f"{where}.name")
    if not name:
        raise wrong(f"{where}.name", name, "a name")
    return name


def _bad_choice(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, "tool_choice")
