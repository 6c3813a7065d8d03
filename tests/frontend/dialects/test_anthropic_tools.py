"""Tools and the choice among them: what is offered at the conversation's end, and what is refused by name."""

from typing import Any

import pytest

from frontend.dialects.anthropic_blocks import ToolChange
from frontend.dialects.anthropic_tools import read_tools
from frontend.dialects.base import NamedTool, Tool, ToolUse
from frontend.errors import RequestError
from protocol.errors import ErrorCode

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
LOOK = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
LATER = {"name": "later", "input_schema": SCHEMA, "defer_loading": True}


def offered(*changes: ToolChange, **fields: Any) -> list[str]:
    """The names of the tools, in order."""
    use, _ = read_tools({"tools": [LOOK, LATER], **fields}, changes)
    return [] if use is None else [tool.name for tool in use.tools]


def refused(**fields: Any) -> RequestError:
    """The error for these fields."""
    with pytest.raises(RequestError) as caught:
        read_tools(fields)
    return caught.value


def test_tools_as_declared() -> None:
    """Name, description, schema and strictness; without a word of a choice the model decides."""
    tools = [{**LOOK, "type": "custom", "strict": True, "cache_control": {"type": "ephemeral"}}]
    expected = Tool(name="look", description="Looks.", parameters=SCHEMA, is_strict=True)
    assert read_tools({"tools": tools}) == (ToolUse(tools=(expected,)), ())


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "look"}, NamedTool("look")),
    ],
)
@pytest.mark.parametrize("is_single", [None, False, True])
def test_choices(choice: dict[str, Any], expected: object, is_single: bool | None) -> None:
    """Each in the core's words, with one call or several."""
    use, _ = read_tools({"tools": [LOOK], "tool_choice": {**choice, "disable_parallel_tool_use": is_single}})
    assert use is not None
    assert (use.choice, use.is_parallel) == (expected, is_single is not True)


@pytest.mark.parametrize("fields", [{}, {"tools": None}, {"tools": []}, {"tools": [], "tool_choice": {"type": "auto"}}])
def test_no_tools_is_none(fields: dict[str, Any]) -> None:
    """Then there is nothing to call."""
    assert read_tools(fields) == (None, ())


def test_a_deferred_tool_waits_until_it_is_named() -> None:
    """By a reference in a result or an addition; a removal takes a tool away, and an unknown name is nobody's."""
    assert offered() == ["look"]
    assert offered(ToolChange("later", "x")) == ["look", "later"]
    assert offered(ToolChange("later", "x"), ToolChange("look", "x", is_removal=True)) == ["later"]
    assert offered(ToolChange("nobody", "x"), ToolChange("nobody", "x", is_removal=True)) == ["look"]
    assert offered(tools=[LATER]) == []


def test_a_tool_defined_in_the_conversation() -> None:
    """Is offered like any other, and checked like one."""
    added = ToolChange("more", "messages.1.content.0.tool.definition", definition={**LOOK, "name": "more"})
    assert offered(added) == ["look", "more"]
    with pytest.raises(RequestError) as caught:
        read_tools({"tools": [LOOK]}, [ToolChange("more", "messages.1", definition={"name": "more"})])
    assert caught.value.param == "messages.1.input_schema"


@pytest.mark.parametrize(
    "kind", ["web_search_20250305", "bash_20250124", "text_editor_20250728", "tool_search_tool_regex", "mcp_toolset"]
)
def test_anthropics_own_tools_are_refused_by_their_type(kind: str) -> None:
    """A call of one could not be answered."""
    error = refused(tools=[LOOK, {"type": kind, "name": "x"}])
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, "tools.1")
    assert f'"{kind}"' in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools.0"),
        ({"tools": [{"input_schema": SCHEMA}]}, "tools.0.name"),
        ({"tools": [{**LOOK, "name": ""}]}, "tools.0.name"),
        ({"tools": [{"name": "x"}]}, "tools.0.input_schema"),
        ({"tools": [{**LOOK, "description": 7}]}, "tools.0.description"),
        ({"tools": [{**LOOK, "strict": "yes"}]}, "tools.0.strict"),
        ({"tools": [{**LOOK, "defer_loading": 1}]}, "tools.0.defer_loading"),
        ({"tools": [LOOK, LOOK]}, "tools.1"),
        ({"tools": [LOOK], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [LOOK], "tool_choice": {}}, "tool_choice.type"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": [LATER], "tool_choice": {"type": "tool", "name": "later"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(fields: dict[str, Any], param: str) -> None:
    """Down to the field."""
    error = refused(**fields)
    assert (error.status, error.param) == (400, param)


def test_fields_without_effect_are_named() -> None:
    """Once over all tools."""
    tools = [{**LOOK, "input_examples": [{}], "zebra": 1}, {**LOOK, "name": "b", "allowed_callers": ["direct"]}]
    assert read_tools({"tools": tools, "tool_choice": {"type": "auto", "x": 1}})[1] == (
        "tools[].input_examples",
        "tools[].zebra",
        "tool_choice.x",
    )
