"""Images and files in a conversation: refused where they are asked about, told as a note where they are history."""

from typing import Any

import pytest

from frontend.dialects.anthropic import parse_message
from frontend.dialects.attachments import asked_index, note
from frontend.dialects.base import ChatPrompt, Generation
from frontend.dialects.openai_chat import parse_chat
from frontend.dialects.openai_responses import parse_responses
from frontend.dialects.openai_responses_items import Recalled
from frontend.errors import RequestError
from protocol.errors import ErrorCode

NOTE = "[image omitted: this model reads text only]"
ANSWER = {"role": "assistant", "content": "A fox."}
AGAIN = {"role": "user", "content": "And now?"}


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([], None),
        (["user"], 0),
        (["system", "user"], 1),
        (["user", "user"], 1),
        (["user", "assistant", "user"], 2),
        (["user", "assistant", "tool"], None),
        (["user", "assistant", "tool", "user"], 3),
        (["user", "tool"], 0),
        (["user", "assistant"], 0),
        (["user", "assistant", "assistant"], None),
        (["assistant"], None),
        ([["user"], None], None),
    ],
)
def test_what_is_asked_is_the_last_of_the_user(roles: list[object], expected: int | None) -> None:
    """Until it is answered; a last turn of the assistant is where the reply begins."""
    assert asked_index(roles) == expected


def chat(*messages: dict[str, Any]) -> Generation:
    return parse_chat({"messages": list(messages)})


def responses(*items: dict[str, Any], **fields: Any) -> Generation:
    return parse_responses({"input": list(items)}, **fields)


def anthropic(*messages: dict[str, Any]) -> Generation:
    return parse_message({"messages": list(messages), "max_tokens": 5})


def told(generation: Generation) -> list[Any]:
    """Each message's text as the template gets it."""
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    return [message["content"] for message in prompt.messages]


def with_image(kind: str, text_kind: str = "text") -> dict[str, Any]:
    """A user's message of a text and an image."""
    return {"role": "user", "content": [{"type": text_kind, "text": "What is it? "}, {"type": kind, "source": {}}]}


DIALECTS = [
    (chat, with_image("image_url"), "messages[].content[].image_url", "messages[0].content[1]"),
    (responses, with_image("input_image", "input_text"), "input[].content[].input_image", "input[0].content[1]"),
    (anthropic, with_image("image"), "image.source", "messages.0.content.1"),
]


@pytest.mark.parametrize(("parse", "message", "name", "place"), DIALECTS)
def test_an_image_that_is_asked_about_is_refused(parse: Any, message: dict[str, Any], name: str, place: str) -> None:
    """By its place, also where the reply begins in a last turn of the assistant."""
    del name
    for messages in ([message], [message, ANSWER]):
        with pytest.raises(RequestError) as caught:
            parse(*messages)
        assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, place)


@pytest.mark.parametrize(("parse", "message", "name", "place"), DIALECTS)
def test_an_earlier_image_is_a_note(parse: Any, message: dict[str, Any], name: str, place: str) -> None:
    """Answered or not: the session goes on, and the client is told what was left out."""
    del place
    for messages in ([message, ANSWER, AGAIN], [message, AGAIN]):
        generation = parse(*messages)
        text = "\n".join(told(generation))
        assert (text.startswith("What is it? "), NOTE in text, text.endswith("And now?")) == (True, True, True)
        assert generation.ignored == (name,)


def test_a_chats_results_of_tools_may_have_images() -> None:
    """The model reads a note; recordings and files have words of their own."""
    call = {"id": "c1", "function": {"name": "read", "arguments": "{}"}}
    parts = [{"type": kind} for kind in ("image_url", "input_audio", "video_url", "file")]
    generation = chat(
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": parts},
    )
    assert told(generation)[2] == (
        f"{NOTE}[recording omitted: this model reads text only]"
        "[video omitted: this model reads text only][file omitted: this model reads text only]"
    )
    assert generation.ignored == tuple(f"messages[].content[].{part['type']}" for part in parts)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_an_image_in_an_instruction_is_refused(role: str) -> None:
    """It holds for the reply that is asked for."""
    for parse, kind, place in ((chat, "image_url", "messages"), (responses, "input_image", "input")):
        with pytest.raises(RequestError) as caught:
            parse({"role": role, "content": [{"type": kind}]}, AGAIN)
        assert caught.value.param == f"{place}[0].content[0]"


def test_outputs_of_responses_calls_may_have_images() -> None:
    """As Codex sends a picture that the model wanted to see."""
    generation = responses(
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "image_url": "data:x"}]},
    )
    assert told(generation)[2] == NOTE
    assert generation.ignored == ("input[].output[].input_image",)


def test_an_image_of_a_stored_response_is_a_note() -> None:
    """What a request goes on from was asked before."""
    generation = responses(AGAIN, recalled=Recalled(history=(with_image("input_image", "input_text"),)))
    assert told(generation) == [f"What is it? {NOTE}", "And now?"]
    assert generation.ignored == ("previous_response_id[].content[].input_image",)


def result(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """A turn in which a tool is called, and its result."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": list(blocks)}]},
    ]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
PDF = {"type": "document", "title": "T", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}


def test_anthropics_results_of_tools_may_have_images() -> None:
    """As Claude Code sends a file that it has read, in the turn that is asked and ever after."""
    generation = anthropic(*result(IMAGE, {"type": "text", "text": "a.png"}, PDF))
    expected = f"{NOTE}\na.png\nT\n[document omitted: this model reads text only]"
    assert told(generation)[2] == expected
    assert generation.ignored == ("image.source", "document.source")
    assert told(anthropic(*result(IMAGE), ANSWER, AGAIN))[2] == NOTE


@pytest.mark.parametrize(
    ("block", "place"),
    [
        (IMAGE, "messages.0.content.0"),
        (PDF, "messages.0.content.0.source"),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}, IMAGE]}},
            "messages.0.content.0.source.content.1",
        ),
    ],
)
def test_anthropics_attachments_are_refused_where_they_are_asked_about(block: dict[str, Any], place: str) -> None:
    """Also inside a document; a message later they are notes."""
    message = {"role": "user", "content": [block]}
    with pytest.raises(RequestError) as caught:
        anthropic(message)
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, place)
    assert " omitted: this model reads text only]" in told(anthropic(message, ANSWER, AGAIN))[0]


def test_a_document_of_an_unknown_kind_is_refused_wherever_it_stands() -> None:
    """What it holds is not known."""
    block = {"type": "document", "source": {"type": "scroll"}}
    with pytest.raises(RequestError) as caught:
        anthropic({"role": "user", "content": [block]}, ANSWER, AGAIN)
    assert caught.value.param == "messages.0.content.0.source"


def test_notes_name_what_is_left_out() -> None:
    """In one word."""
    assert note("input_file") == "[file omitted: this model reads text only]"
