"""Messages and system prompt: what the template gets, turn by turn."""

from typing import Any

import pytest

from frontend.dialects.anthropic_messages import ReadPrompt, read_prompt
from frontend.errors import RequestError

CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
PLAIN_CALL = {"type": "function", "id": "toolu_1", "function": {"name": "look", "arguments": {"at": "sky"}}}


def read(*messages: dict[str, Any], **fields: Any) -> ReadPrompt:
    """A body of these messages."""
    return read_prompt({"messages": list(messages), **fields})


def plain(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The messages as the template gets them."""
    return list(read(*messages, **fields).prompt.messages)


def refused(*messages: Any, **fields: Any) -> str | None:
    """The place that the error names."""
    with pytest.raises(RequestError) as caught:
        read_prompt({"messages": list(messages), **fields})
    assert caught.value.status == 400
    return caught.value.param


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def test_system_and_texts_as_strings_and_as_blocks() -> None:
    """Both spellings are one prompt; blocks of a user's turn are lines of their own, an assistant's go on."""
    expected = [
        {"role": "system", "content": "one\ntwo"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "cd"},
        {"role": "user", "content": "e"},
    ]
    cached = {"cache_control": {"type": "ephemeral"}}
    blocks = [user([text("a", **cached), text("b")]), assistant([text("c"), text("d")]), user([text("e")])]
    assert plain(*blocks, system=[text("one"), text("two", **cached)]) == expected
    assert plain(user("a\nb"), assistant("cd"), user("e"), system="one\ntwo") == expected
    assert read(*blocks, system=[text("one", **cached)]).ignored == ()


def test_a_tool_round_trip() -> None:
    """Calls become the template's, each result a message with its tool's name, and text of the turn follows them."""
    turn = [text("See?"), {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("blue"), text("wide")]}]
    thought = {"type": "thinking", "thinking": "Look up.", "signature": "s"}
    assert plain(user("x"), assistant([thought, text("Let me."), CALL]), user(turn)) == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "Let me.", "reasoning_content": "Look up.", "tool_calls": [PLAIN_CALL]},
        {"role": "tool", "content": "blue\nwide", "tool_call_id": "toolu_1", "name": "look"},
        {"role": "user", "content": "See?"},
    ]


def test_results_of_several_calls_keep_their_order() -> None:
    """Also of a call that is not in the conversation any more: it has no name."""
    results = [{"type": "tool_result", "tool_use_id": id_} for id_ in ("toolu_9", "toolu_1")]
    assert plain(user("x"), assistant([CALL]), user(results))[2:] == [
        {"role": "tool", "content": "", "tool_call_id": "toolu_9"},
        {"role": "tool", "content": "", "tool_call_id": "toolu_1", "name": "look"},
    ]


def test_turns_of_one_role_are_one() -> None:
    """As in Anthropic's API; a turn with calls ends before the next."""
    assert plain(user("a"), user("b"), assistant("c"), assistant([CALL]), user("d")) == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c", "tool_calls": [PLAIN_CALL]},
        {"role": "user", "content": "d"},
    ]


def test_the_reply_goes_on_in_a_last_turn_of_the_assistant() -> None:
    """No new turn is opened."""
    prompt = read(user("Which?"), assistant("It is (")).prompt
    assert (prompt.add_generation_prompt, prompt.continue_final_message) == (False, True)
    assert prompt.messages[-1] == {"role": "assistant", "content": "It is ("}


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_last_turn_is_none(content: Any) -> None:
    """There is nothing to continue."""
    prompt = read(user("Which?"), assistant(content)).prompt
    assert (prompt.add_generation_prompt, list(prompt.messages)) == (True, [{"role": "user", "content": "Which?"}])


def test_a_last_turn_with_a_call_cannot_be_continued() -> None:
    """The error names the message."""
    assert refused(user("x"), assistant([CALL])) == "messages.1"


def test_later_system_messages_stay_in_their_place() -> None:
    """In the user's turn, marked; only one before any turn joins the system prompt."""
    first = {"role": "system", "content": "two"}
    later = {"role": "system", "content": [text("now", cache_control={"type": "ephemeral"})]}
    assert plain(first, user("a"), later, assistant("b"), later, system="one") == [
        {"role": "system", "content": "one\ntwo"},
        {"role": "user", "content": "a\n<system-reminder>\nnow\n</system-reminder>"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "<system-reminder>\nnow\n</system-reminder>"},
    ]


def test_a_system_message_can_end_with_its_turn() -> None:
    """clear_at next_user_message: it is there until the user speaks again."""
    passing = {"role": "system", "content": "now", "clear_at": "next_user_message"}
    assert "now" in plain(user("a"), passing)[0]["content"]
    assert plain(user("a"), passing, assistant("b"), user("c"))[0] == {"role": "user", "content": "a"}
    assert refused(user("a"), {**passing, "clear_at": "tomorrow"}) == "messages.1.clear_at"
    assert refused({**user("a"), "clear_at": "next_user_message"}) == "messages.0.clear_at"


def test_a_system_message_may_only_change_the_tools() -> None:
    """It leaves no text."""
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "see"}}
    found = read(user("a"), {"role": "system", "content": [added, removed]})
    assert list(found.prompt.messages) == [{"role": "user", "content": "a"}]
    assert [(change.name, change.is_removal) for change in found.tool_changes] == [("look", False), ("see", True)]


def test_what_is_ignored_is_named_once_over_all_messages() -> None:
    """Without indexes: a long conversation repeats them."""
    cited = text("a", citations=[{"type": "char_location"}], zebra=1)
    assert read(user([cited, cited]), {**assistant([cited]), "stripe": 1}, user("x")).ignored == (
        "text.citations",
        "text.zebra",
        "messages[].stripe",
    )


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], "messages"),
        (["x"], "messages.0"),
        ([{"content": "x"}], "messages.0.role"),
        ([{"role": "tool", "content": "x"}], "messages.0.role"),
        ([{"role": ["user"], "content": "x"}], "messages.0.role"),
        ([user("x"), user(None)], "messages.1.content"),
        ([user([])], "messages.0.content"),
        ([user(7)], "messages.0.content"),
        ([user(["x"])], "messages.0.content.0"),
        ([user([text("a"), {"type": "text"}])], "messages.0.content.1.text"),
        ([user([text("a"), {"text": "b"}])], "messages.0.content.1.type"),
        ([user([CALL])], "messages.0.content.0"),
        ([assistant("")], "messages"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(messages: list[Any], place: str) -> None:
    """As Anthropic spells it."""
    assert refused(*messages) == place


def test_messages_must_be_there() -> None:
    """And be a list."""
    for body in ({}, {"messages": None}, {"messages": {}}):
        with pytest.raises(RequestError) as caught:
            read_prompt(body)
        assert caught.value.param == "messages"
