"""Anthropic's bodies: every field in its place, refused by name, or named as ignored."""

from typing import Any

import pytest

from frontend.dialects.anthropic import parse_message
from frontend.dialects.base import AskedSampling, ChatPrompt, Constraint, Generation, Tool, ToolUse
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar


def parsed(**fields: Any) -> Generation:
    """A body with one message and these fields."""
    return parse_message({"messages": [{"role": "user", "content": "Hi"}], **fields})


def refused(**fields: Any) -> RequestError:
    """The error for such a body."""
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    return caught.value


def variables(**fields: Any) -> object:
    """What the template is given beside the messages."""
    (prompt,) = parsed(**fields).prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt.variables


def test_every_field_arrives() -> None:
    """Anthropic's own, and those of Convoy's other dialects."""
    generation = parsed(
        model="claude-x",
        max_tokens=50,
        system="Be brief.",
        stop_sequences=["A", "B", "A"],
        stream=True,
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        seed=7,
        stop_token_ids=[5],
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        ignore_eos=True,
        min_tokens=3,
        cache_salt="mine",
        priority=-2,
        timeout=2.5,
        metadata={"user_id": "u"},
        service_tier="auto",
    )
    assert generation == Generation(
        model="claude-x",
        prompts=(ChatPrompt(({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})),),
        sampling=AskedSampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.05),
        max_tokens=50,
        seed=7,
        stops=("A", "B"),
        stop_ids=(5,),
        include_stop=True,
        skip_special_tokens=False,
        ignore_eos=True,
        min_tokens=3,
        cache_salt="mine",
        priority=-2,
        timeout_s=2.5,
        is_stream=True,
    )


def test_nothing_said_is_nothing_asked() -> None:
    """Also where Anthropic wants a field: without max_tokens the reply may fill the context."""
    assert parsed() == Generation(model=None, prompts=(ChatPrompt(({"role": "user", "content": "Hi"},)),))
    assert parsed(max_tokens=None, system=None, thinking=None, tools=None, output_config=None) == parsed()


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "enabled", "budget_tokens": 2_048}, True),
        ({"type": "adaptive"}, True),
        ({"type": "between_tools"}, True),
        ({"type": "disabled"}, False),
    ],
)
def test_thinking_reaches_the_template(thinking: dict[str, Any], expected: bool) -> None:
    """Under both names that templates have for it; left out, the template decides."""
    assert variables(thinking=thinking) == {"enable_thinking": expected, "thinking": expected}
    assert variables() == {}


@pytest.mark.parametrize(
    ("effort", "expected"), [("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")]
)
def test_effort_reaches_the_template(effort: str, expected: str) -> None:
    """As reasoning_effort, whose words end at high."""
    assert variables(output_config={"effort": effort}) == {"reasoning_effort": expected}


def test_fields_for_the_template_are_told_where_it_does_not_read_them() -> None:
    """Each with the variables that it sets."""
    (prompt,) = parsed(thinking={"type": "adaptive"}, output_config={"effort": "low"}).prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.asked_by == {
        "thinking": ("enable_thinking", "thinking"),
        "output_config.effort": ("reasoning_effort",),
    }


def test_tools_arrive() -> None:
    """Those that are offered at the conversation's end, with the choice among them."""
    tool = {"name": "look", "input_schema": {"type": "object"}}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    expected = Tool(name="look", parameters={"type": "object"})
    assert parsed(tools=[tool, {**tool, "name": "later", "defer_loading": True}], tool_choice=choice).tools == ToolUse(
        tools=(expected,), choice="required", is_parallel=False
    )


@pytest.mark.parametrize(
    ("display", "is_hidden", "ignored"),
    [
        (None, False, ()),
        ("summarized", False, ()),
        ("updates", False, ()),
        ("omitted", True, ()),
        ("in_colour", False, ("thinking.display",)),
    ],
)
def test_thinking_can_be_hidden(display: str | None, is_hidden: bool, ignored: tuple[str, ...]) -> None:
    """display omitted keeps it from the client; a word that nobody knows is named."""
    generation = parsed(thinking={"type": "adaptive", "display": display})
    assert (generation.hides_reasoning, generation.ignored) == (is_hidden, ignored)
    assert refused(thinking={"type": "adaptive", "display": 1}).param == "thinking.display"


@pytest.mark.parametrize("place", ["output_config.format", "output_format"])
def test_a_schema_constrains_the_reply(place: str) -> None:
    """From its place and from the one it had before."""
    form = {"type": "json_schema", "schema": {"type": "object"}}
    generation = parsed(output_format=form) if place == "output_format" else parsed(output_config={"format": form})
    assert generation.constraint == Constraint(place, Grammar(kind="json_schema", text='{"type":"object"}'))


def test_other_dialects_constraints_count_too() -> None:
    """Under their own names, instead of free text; beside a format one of the two would be forgotten."""
    assert parsed(guided_regex="[0-9]+").constraint == Constraint("guided_regex", Grammar(kind="regex", text="[0-9]+"))
    form = {"type": "json_schema", "schema": {"type": "object"}}
    error = refused(output_config={"format": form}, grammar='root ::= "x"')
    assert (error.param, error.message) == (
        "grammar",
        "`output_config.format` and `grammar` exclude each other: send one of them",
    )


IGNORED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"zebra": 1}, ("zebra",)),
    ({"thinking": {"type": "enabled", "budget_tokens": 5_000}}, ("thinking.budget_tokens",)),
    ({"output_format": {"type": "json_schema", "schema": {}, "zebra": 1}}, ("output_format.zebra",)),
    ({"output_config": {"task_budget": {"type": "tokens", "total": 9}}}, ("output_config.task_budget",)),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, ("context_management",)),
    ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, ()),
    ({"service_tier": "standard_only", "speed": "standard", "metadata": {}, "cache_control": {"type": "x"}}, ()),
    ({"speed": "fast", "inference_geo": "eu"}, ("speed", "inference_geo")),
    ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, ("messages[].name",)),
]


@pytest.mark.parametrize(("fields", "ignored"), IGNORED)
def test_what_has_no_effect_is_named(fields: dict[str, Any], ignored: tuple[str, ...]) -> None:
    """Unknown fields, and known ones that ask for what is not there; what changes nothing is taken in silence."""
    assert parsed(**fields).ignored == ignored


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "7"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"min_tokens": 9, "max_tokens": 5}, "min_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
    ({"stop_sequences": [1]}, "stop_sequences[0]"),
    ({"stream": 1}, "stream"),
    ({"model": 7}, "model"),
    ({"thinking": "on"}, "thinking"),
    ({"thinking": {"type": "some"}}, "thinking.type"),
    ({"thinking": {"type": ["enabled"]}}, "thinking.type"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "yaml"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ({"output_format": {}, "output_config": {"format": {}}}, "output_format"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"n": 2}, "n"),
    ({"stop": "x"}, "stop"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"typical_p": 0.5}, "typical_p"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """A wrong type or range, and what would change the reply and is not there."""
    error = refused(**fields)
    assert (error.status, error.param) == (400, param)


def test_a_body_that_is_no_object_is_refused() -> None:
    """As in every dialect."""
    for body in (None, [], "x", 3):
        with pytest.raises(RequestError) as caught:
            parse_message(body)
        assert caught.value.code == ErrorCode.INVALID_REQUEST
