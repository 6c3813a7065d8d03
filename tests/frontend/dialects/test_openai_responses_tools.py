"""Which tools of a Responses request the model is offered, under which names, and what may be chosen."""

from typing import Any

import pytest

from frontend.dialects.base import NamedTool, Tool, ToolUse
from frontend.dialects.openai_responses_tools import OfferedTools, ToolOrigin, joined_name
from frontend.errors import RequestError
from protocol.errors import ErrorCode

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "description": "Look.", "parameters": SCHEMA, "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Edit."}
HOME = {
    "type": "namespace",
    "name": "mcp__home__",
    "description": "At home.",
    "tools": [{"type": "function", "name": "light", "parameters": None}, PATCH],
}


def offered(*tools: dict[str, Any]) -> OfferedTools:
    made = OfferedTools()
    made.read(list(tools), "tools")
    return made


def test_a_function_is_offered_as_it_is() -> None:
    """Flat, unlike chat's."""
    made = offered(WEATHER)
    assert made.tools == [Tool(name="weather", description="Look.", parameters=SCHEMA, is_strict=True)]
    assert made.origins == {"weather": ToolOrigin(name="weather")}
    assert (made.told, made.ignored) == ([WEATHER], {})


def test_a_custom_tool_is_a_function_of_one_string() -> None:
    """A grammar is told, and named as not enforced."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    made = offered(PATCH, {**PATCH, "name": "other", "format": grammar})
    assert [tool.parameters and tool.parameters["required"] for tool in made.tools] == [["input"], ["input"]]
    assert 'start: "x"' in str(made.tools[1].parameters)
    assert made.origins["patch"] == ToolOrigin(kind="custom", name="patch")
    assert list(made.ignored) == ["tools[].format"]


def test_a_namespaces_tools_have_joined_names() -> None:
    """And go back to the client under both."""
    made = offered(HOME, WEATHER)
    assert [tool.name for tool in made.tools] == ["mcp__home__light", "mcp__home__patch", "weather"]
    assert made.origins["mcp__home__light"] == ToolOrigin(name="light", namespace="mcp__home__")
    assert made.origins["mcp__home__patch"] == ToolOrigin(kind="custom", name="patch", namespace="mcp__home__")
    assert (joined_name("_x", "ns"), joined_name("__x", "ns__"), joined_name("x", None)) == ("ns___x", "ns__x", "x")


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview_2025_03_11", "tool_search", "image_generation"])
def test_what_codex_always_declares_is_named(kind: str) -> None:
    """It is not offered, and not among the tools that the response repeats."""
    made = offered({"type": kind}, WEATHER)
    assert list(made.ignored) == [f"tools[].type={kind}"]
    assert made.told == [WEATHER]


def test_unknown_fields_of_a_choice_are_named() -> None:
    """Of the choice itself and of each allowed tool, without its index."""
    made = offered(WEATHER)
    named = {"type": "function", "name": "weather", "strict": True}
    made.use(named, is_parallel=True)
    assert list(made.ignored) == ["tool_choice.strict"]
    made = offered(WEATHER)
    made.use({"type": "allowed_tools", "mode": "auto", "tools": [named, named], "x": 1}, is_parallel=True)
    assert list(made.ignored) == ["tool_choice.x", "tool_choice.tools[].strict"]


REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([{"type": "file_search", "vector_store_ids": []}], "tools[0]"),
    ([{"type": "computer"}], "tools[0]"),
    ([{"type": "local_shell"}], "tools[0]"),
    ([{"type": "mcp"}], "tools[0]"),
    ([{"type": "code_interpreter"}], "tools[0]"),
    ([{"name": "x"}], "tools[0].type"),
    ([{"type": "function"}], "tools[0].name"),
    ([{"type": "function", "name": ""}], "tools[0].name"),
    ([{"type": "function", "name": "f", "parameters": []}], "tools[0].parameters"),
    ([{"type": "function", "name": "f", "strict": "yes"}], "tools[0].strict"),
    ([{"type": "function", "name": "f", "description": 7}], "tools[0].description"),
    ([{"type": "function", "function": {"name": "f"}}], "tools[0].name"),
    ([{"type": "custom", "name": "f", "format": {"type": "xml"}}], "tools[0].format.type"),
    ([{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}], "tools[0].tools[0].type"),
    ([{"type": "namespace", "name": "n"}], "tools[0].tools"),
    ([WEATHER, WEATHER], "tools[1]"),
    ([{"type": "function", "name": f"f{index}"} for index in range(1_025)], "tools[1024]"),
]


@pytest.mark.parametrize(("tools", "param"), REFUSED)
def test_refusals_name_the_tool(tools: list[dict[str, Any]], param: str) -> None:
    """By its index."""
    with pytest.raises(RequestError) as caught:
        offered(*tools)
    assert (caught.value.param, caught.value.status) == (param, 400)


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        (None, ["weather", "patch"], "auto"),
        ("auto", ["weather", "patch"], "auto"),
        ("none", ["weather", "patch"], "none"),
        ("required", ["weather", "patch"], "required"),
        ({"type": "function", "name": "weather"}, ["weather", "patch"], NamedTool("weather")),
        ({"type": "custom", "name": "patch"}, ["weather", "patch"], NamedTool("patch")),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
            ["weather"],
            "required",
        ),
    ],
)
def test_choices(choice: object, names: list[str], expected: object) -> None:
    """Allowed tools are the only ones that the model is offered."""
    use = offered(WEATHER, PATCH).use(choice, is_parallel=False)
    assert use is not None
    assert [tool.name for tool in use.tools] == names
    assert (use.choice, use.is_parallel) == (expected, False)


def test_a_tool_in_a_namespace_is_chosen_by_both_names() -> None:
    """As a call of it goes back."""
    use = offered(HOME).use({"type": "function", "name": "light", "namespace": "mcp__home__"}, is_parallel=True)
    assert isinstance(use, ToolUse)
    assert use.choice == NamedTool("mcp__home__light")


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes",
        {"type": "web_search"},
        {"type": "function", "name": "nobody"},
        {"type": "function"},
        {"type": "function", "name": "weather", "namespace": 7},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "nobody"}]},
        7,
    ],
)
def test_choices_that_cannot_be_served(choice: object) -> None:
    """Named by the field."""
    with pytest.raises(RequestError) as caught:
        offered(WEATHER).use(choice, is_parallel=True)
    assert (caught.value.param or "").startswith("tool_choice")
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_without_a_tool_none_is_used() -> None:
    """Nothing can be required, then."""
    assert offered({"type": "web_search"}).use("auto", is_parallel=True) is None
    with pytest.raises(RequestError):
        offered({"type": "web_search"}).use("required", is_parallel=True)
