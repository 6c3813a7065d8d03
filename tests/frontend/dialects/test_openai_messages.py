"""Chat messages: roles, contents, tool history and what is wrong with them, by its place."""

from typing import Any

import pytest

from frontend.dialects.openai_messages import read_messages
from frontend.errors import RequestError
from protocol.errors import ErrorCode


def one(message: object) -> dict[str, Any]:
    """The message as the template gets it."""
    return read_messages([message]).messages[0]


def refused(message: object) -> RequestError:
    """The error for one message."""
    with pytest.raises(RequestError) as caught:
        read_messages([message])
    return caught.value


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("tool", "tool"),
        ("function", "tool"),
    ],
)
def test_roles_become_those_of_templates(role: str, expected: str) -> None:
    """OpenAI's newer and older names too."""
    assert one({"role": role, "content": "x"}) == {"role": expected, "content": "x"}


@pytest.mark.parametrize("role", [None, "", "User", "bot", 1, ["user"]])
def test_an_unknown_role_is_refused(role: object) -> None:
    """The error names the place and the known roles."""
    error = refused({"role": role, "content": "x"})
    assert error.param == "messages[0].role"
    assert "system, developer, user, assistant, tool" in error.message


def test_text_parts_are_joined() -> None:
    """Without anything between them, as templates join them themselves."""
    parts = [{"type": "text", "text": "a\n"}, {"type": "text", "text": "b"}]
    assert one({"role": "user", "content": parts})["content"] == "a\nb"


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "input_text", "video_url"])
def test_a_part_that_is_not_text_is_refused_by_its_type(kind: str) -> None:
    """The error names the type and the place."""
    error = refused({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind, kind: {}}]})
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, "messages[0].content[1]")
    assert f'"{kind}"' in error.message


@pytest.mark.parametrize("content", [None, "absent"])
def test_an_assistant_may_have_no_content(content: object) -> None:
    """Null beside tool calls is how OpenAI's own replies look; templates get an empty string."""
    message = {"role": "assistant", "content": content} if content is None else {"role": "assistant"}
    assert one(message) == {"role": "assistant", "content": ""}


def test_a_refusal_is_the_content_of_an_assistant_without_one() -> None:
    """It is what the assistant said."""
    assert one({"role": "assistant", "content": None, "refusal": "No."})["content"] == "No."
    assert one({"role": "assistant", "content": "Yes.", "refusal": None})["content"] == "Yes."


@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_tool_may_return_nothing(role: str) -> None:
    """As with mlx_lm.server: its result is an empty text."""
    for message in ({"role": role, "content": None}, {"role": role}):
        assert one(message) == {"role": "tool", "content": ""}


@pytest.mark.parametrize("role", ["system", "user"])
def test_others_need_content(role: str) -> None:
    """Missing or null is refused."""
    assert refused({"role": role}).param == "messages[0].content"
    assert refused({"role": role, "content": None}).param == "messages[0].content"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"b": 1, "a": [null]}', {"b": 1, "a": [None]}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ('{"a": ', '{"a": '),
        ("[1]", "[1]"),
    ],
)
def test_arguments_become_an_object_where_they_hold_one(arguments: object, expected: object) -> None:
    """What a model left unfinished stays text: history must never fail a request."""
    call = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": arguments}}
    assert one({"role": "assistant", "content": None, "tool_calls": [call]})["tool_calls"] == [
        {"type": "function", "id": "c1", "function": {"name": "get", "arguments": expected}}
    ]


def test_a_tool_result_keeps_its_call() -> None:
    """Templates match results to calls by name or id."""
    message = {"role": "tool", "content": "7", "tool_call_id": "c1", "name": "get"}
    assert one(message) == message


def test_unknown_fields_of_calls_are_named_once() -> None:
    """Not the index, which clients keep from a stream."""
    call = {"index": 0, "id": "c", "type": "function", "x": 1, "function": {"name": "f", "arguments": "{}", "y": 2}}
    found = read_messages([{"role": "assistant", "content": None, "tool_calls": [call, call]}])
    assert found.ignored == ("messages[].tool_calls[].x", "messages[].tool_calls[].function.y")


def test_empty_tool_calls_are_left_out() -> None:
    """Templates ask for the key, and would open a call that is not there."""
    assert one({"role": "assistant", "content": "x", "tool_calls": []}) == {"role": "assistant", "content": "x"}


def test_reasoning_history_reaches_the_template() -> None:
    """Under the name it came with; the template knows both."""
    assert one({"role": "assistant", "content": "x", "reasoning_content": "why"})["reasoning_content"] == "why"
    assert one({"role": "assistant", "content": "x", "reasoning": "why"})["reasoning"] == "why"


CALL = {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[0]"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "x", "name": 1}, "messages[0].name"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [1]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"type": "web"}]}, "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[0].audio"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(message: object, param: str) -> None:
    """Index and path, as a client would write them."""
    error = refused(message)
    assert (error.status, error.param) == (400, param)


def test_the_place_counts_messages() -> None:
    """The second of two is messages[1]."""
    with pytest.raises(RequestError) as caught:
        read_messages([{"role": "user", "content": "x"}, {"role": "user"}])
    assert caught.value.param == "messages[1].content"


def test_a_custom_tools_call_is_told_as_a_functions() -> None:
    """Of one string, as in the Responses API; what it cannot have is named by its place."""
    call = {"type": "custom", "id": "c1", "custom": {"name": "patch", "input": "*** x"}}
    read = read_messages([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}])
    function = {"name": "patch", "arguments": {"input": "*** x"}}
    assert read.messages[1]["tool_calls"] == [{"type": "function", "id": "c1", "function": function}]
    for custom, param in ((None, "custom"), ({"name": "patch"}, "custom.input"), ({"input": "x"}, "custom.name")):
        with pytest.raises(RequestError) as caught:
            read_messages([{"role": "assistant", "tool_calls": [{**call, "custom": custom}]}])
        assert caught.value.param == f"messages[0].tool_calls[0].{param}"
