"""Items of a Responses conversation become messages that chat templates take."""

from typing import Any

import pytest

from frontend.dialects.openai_responses_items import Transcript
from frontend.dialects.openai_responses_output import AS_TEXT, OpenReasoning, Place
from frontend.dialects.openai_responses_tools import OfferedTools
from frontend.errors import RequestError
from tests.frontend.dialects.response_items import CALL, OUTPUT, SAID, USER

THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Look it up."}]}
TOLD_CALL = {
    "type": "function",
    "id": "call_1",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
}


def transcript(*items: dict[str, Any]) -> Transcript:
    made = Transcript(OfferedTools())
    made.add_all(items, "input")
    return made


def sealed(text: str) -> str:
    """An encrypted_content as the server makes it."""
    opened = OpenReasoning(Place("rs_1", 0, lambda: 0), AS_TEXT, is_sealed=True)
    opened.add(text)
    item = opened.item("completed")
    assert isinstance(item.encrypted_content, str)
    return item.encrypted_content


def test_an_assistants_turn_is_one_message() -> None:
    """Its reasoning, its words and its calls, as a template wants them; the output of a call has the call's name."""
    assert transcript(USER, THOUGHT, SAID, CALL, OUTPUT, SAID).messages == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Rain.",
            "reasoning_content": "Look it up.",
            "tool_calls": [TOLD_CALL],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "rain"},
        {"role": "assistant", "content": "Rain."},
    ]


def test_several_calls_are_one_message() -> None:
    """And words between them are not lost."""
    made = transcript(USER, CALL, SAID, {**CALL, "call_id": "call_2"}, SAID)
    assert made.messages[1:] == [
        {
            "role": "assistant",
            "content": "Rain.\n\nRain.",
            "tool_calls": [TOLD_CALL, {**TOLD_CALL, "id": "call_2"}],
        }
    ]


def test_reasoning_begins_a_turn() -> None:
    """A second thought after a call is another message."""
    made = transcript(USER, THOUGHT, CALL, THOUGHT, {**CALL, "call_id": "call_2"})
    assert [message.get("reasoning_content") for message in made.messages] == [None, "Look it up.", "Look it up."]
    assert [len(message.get("tool_calls", ())) for message in made.messages] == [0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"content": THOUGHT["content"], "encrypted_content": sealed("sealed")}, "Look it up."),
        ({"encrypted_content": sealed("sealed é"), "summary": [{"type": "summary_text", "text": "sum"}]}, "sealed é"),
        ({"encrypted_content": "gAAAA", "summary": [{"type": "summary_text", "text": "sum"}]}, "sum"),
        ({"encrypted_content": "convoy-reasoning:%%", "summary": []}, None),
        ({"encrypted_content": "convoy-reasoning:/w==", "summary": []}, None),
        ({"encrypted_content": None, "summary": []}, None),
    ],
)
def test_where_reasoning_is_read(fields: dict[str, Any], expected: str | None) -> None:
    """Its content, else what we sealed, else its summary; another server's seal is named."""
    made = transcript(USER, {"type": "reasoning", **fields}, SAID)
    assert made.messages[-1].get("reasoning_content") == expected
    is_foreign = isinstance(fields["encrypted_content"], str) and expected not in ("Look it up.", "sealed é")
    assert ("input[].encrypted_content" in made.ignored) == is_foreign


def test_leading_system_messages_are_one() -> None:
    """Developer is system; a later one stays where it stands."""
    developer = {"role": "developer", "content": "Be brief."}
    made = transcript({"role": "system", "content": "Be kind."}, developer, USER, developer)
    assert made.messages == [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "system", "content": "Be brief."},
    ]


def test_custom_and_namespaced_calls() -> None:
    """As the model made them: of one string, and of a joined name."""
    made = transcript(
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "c2", "name": "light", "namespace": "mcp__home", "arguments": ""},
    )
    assert made.messages[0]["tool_calls"][0]["function"] == {"name": "patch", "arguments": {"input": "*** x"}}
    assert made.messages[1] == {"role": "tool", "tool_call_id": "c1", "name": "patch", "content": "ok"}
    assert made.messages[2]["tool_calls"][0]["function"] == {"name": "mcp__home__light", "arguments": {}}


def test_items_may_bring_tools() -> None:
    """They are offered like the request's own."""
    made = transcript(
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]}, USER
    )
    assert [tool.name for tool in made.tools.tools] == ["f"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "web_search"}, "input[0]"),
    ({"type": 7}, "input[0].type"),
    ({"type": ["message"]}, "input[0].type"),
    ({}, "input[0].type"),
    ({"role": "wizard", "content": "x"}, "input[0].role"),
    ({"role": "user"}, "input[0].content"),
    ({"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}, "input[0].content[0]"),
    ({"role": "user", "content": [{"type": "input_file"}]}, "input[0].content[0]"),
    ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
    ({"role": "user", "content": [{"text": "x"}]}, "input[0].content[0].type"),
    ({"type": "reasoning", "encrypted_content": 7}, "input[0].encrypted_content"),
    ({"type": "function_call", "call_id": "c", "name": "f", "namespace": 7}, "input[0].namespace"),
    (OUTPUT, "input[0]"),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[0].name"),
    ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, "input[0].input"),
    ({"type": "reasoning", "content": "x"}, "input[0].content"),
    ({"role": "user", "content": "x", "id": 7}, "input[0].id"),
]


@pytest.mark.parametrize(("item", "param"), REFUSED)
def test_refusals_name_the_item(item: dict[str, Any], param: str) -> None:
    """By its index and its field."""
    with pytest.raises(RequestError) as caught:
        transcript(item)
    assert (caught.value.param, caught.value.status) == (param, 400)
