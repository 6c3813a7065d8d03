"""Frames of a stream, and the whole reply that they add up to: blocks, indexes, ends."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.dialects.anthropic_frames import MessageFramer, message_reply
from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    Generation,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    ToolCallArguments,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.sse import frame
from protocol.messages import Usage
from tests.fakes.named_events import StreamedMessage, named_events

FACTS = ReplyFacts(id="msg_1", model="m", created=0, prompt_tokens=30)
USAGE = Usage(prompt_tokens=30, completion_tokens=9, cached_tokens=10)


def asked(max_tokens: int | None = None, *, hides_reasoning: bool = False) -> Generation:
    return Generation(model=None, prompts=(), max_tokens=max_tokens, hides_reasoning=hides_reasoning)


def streamed(events: list[ReplyEvent], generation: Generation) -> StreamedMessage:
    """The stream of one choice, decoded and checked."""
    framer = MessageFramer(FACTS, generation)
    whole: list[ReplyEvent] = [ChoiceStarted(0), *events, ReplyFinished(USAGE)]
    sent = [frame(each.content, each.name) for event in whole for each in framer.frames(event)]
    return StreamedMessage(named_events(b"".join(sent)))


def whole(events: list[ReplyEvent], generation: Generation) -> dict[str, Any]:
    """The same in a reply that is not streamed."""
    choice = WholeChoice(0)
    for event in [ChoiceStarted(0), *events]:
        choice.add(event)
    return msgspec.json.decode(msgspec.json.encode(message_reply(FACTS, generation, [choice], USAGE)))


def call(number: int, *arguments: str) -> list[ReplyEvent]:
    return [
        ToolCallStarted(0, number, f"call_{number}", f"tool{number}"),
        *(ToolCallArguments(0, number, text) for text in arguments),
        ToolCallFinished(0, number),
    ]


def test_the_order_of_a_stream() -> None:
    """A1: message_start with the prompt's tokens, a block, message_delta with the end and the counts, message_stop."""
    found = streamed([ChoiceText(0, "one "), ChoiceText(0, "two"), ChoiceFinished(0, "stop")], asked())
    assert found.types == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found.events[0]["message"]["usage"]["input_tokens"] == 30
    counts = {
        "input_tokens": 20,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 10,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    assert found.end == {"stop_reason": "end_turn", "stop_sequence": None, "usage": counts}
    assert found.text == "one two"


@pytest.mark.parametrize(
    ("max_tokens", "end", "expected"),
    [
        (9, ChoiceFinished(0, "stop"), ("end_turn", None)),
        (9, ChoiceFinished(0, "stop", "END"), ("stop_sequence", "END")),
        (9, ChoiceFinished(0, "length"), ("max_tokens", None)),
        (10, ChoiceFinished(0, "length"), ("model_context_window_exceeded", None)),
        (None, ChoiceFinished(0, "length"), ("max_tokens", None)),
        (9, ChoiceFinished(0, "tool_calls"), ("tool_use", None)),
    ],
)
def test_ends(max_tokens: int | None, end: ChoiceFinished, expected: tuple[str, str | None]) -> None:
    """Streamed and whole alike; fewer tokens than asked for mean that the context was full."""
    events: list[ReplyEvent] = [ToolCallStarted(0, 0, "call_a", "now"), ToolCallFinished(0, 0), end]
    found = streamed(events, asked(max_tokens)).end
    assert (found["stop_reason"], found["stop_sequence"]) == expected
    reply = whole(events, asked(max_tokens))
    assert (reply["stop_reason"], reply["stop_sequence"]) == expected


def test_blocks_come_in_the_order_of_the_reply() -> None:
    """Reasoning, text, a call, text again, two calls: each its own block, whole or streamed."""
    events: list[ReplyEvent] = [
        ChoiceReasoning(0, "hm"),
        ChoiceReasoning(0, "m"),
        ChoiceText(0, "first"),
        *call(0, '{"a": ', "1}"),
        ChoiceText(0, "then"),
        *call(1, "{}"),
        *call(2),
        ChoiceFinished(0, "tool_calls"),
    ]
    expected = [
        {"type": "thinking", "thinking": "hmm", "signature": "convoy"},
        {"type": "text", "text": "first"},
        {"type": "tool_use", "id": "toolu_0", "name": "tool0", "input": {"a": 1}},
        {"type": "text", "text": "then"},
        {"type": "tool_use", "id": "toolu_1", "name": "tool1", "input": {}},
        {"type": "tool_use", "id": "toolu_2", "name": "tool2", "input": {}},
    ]
    assert streamed(events, asked()).blocks == expected
    assert whole(events, asked())["content"] == expected


def test_hidden_reasoning_is_in_the_signature_alone() -> None:
    """display omitted: the block is there, its text is not."""
    events: list[ReplyEvent] = [ChoiceReasoning(0, "se"), ChoiceReasoning(0, "cret"), ChoiceText(0, "x")]
    expected = {"type": "thinking", "thinking": "", "signature": "convoy:c2VjcmV0"}
    assert streamed([*events, ChoiceFinished(0, "stop")], asked(hides_reasoning=True)).blocks[0] == expected


def test_a_call_that_was_cut_off_is_handed_on() -> None:
    """Streamed as far as it came; whole under a name that no tool has, so that nobody runs half of it."""
    events: list[ReplyEvent] = [*call(0, '{"path": "/tm')[:2], ChoiceFinished(0, "length")]
    found = streamed(events, asked())
    assert (found.pieces, found.types[-3:]) == (
        [['{"path": "/tm']],
        ["content_block_stop", "message_delta", "message_stop"],
    )
    assert whole(events, asked())["content"][0]["input"] == {"INVALID_JSON": '{"path": "/tm'}


def test_a_reply_without_text_has_no_block() -> None:
    """Nor does an empty text open one."""
    assert streamed([ChoiceText(0, ""), ChoiceFinished(0, "stop")], asked()).types == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert whole([ChoiceFinished(0, "stop")], asked())["content"] == []


def test_a_silence_begins_the_message_and_then_pings() -> None:
    """So that the first event is message_start, once."""
    framer = MessageFramer(FACTS, asked())
    assert [framer.keepalive().name for _ in range(3)] == ["message_start", "ping", "ping"]
    assert framer.frames(ChoiceStarted(0)) == []


EVENTS = st.lists(
    st.one_of(
        st.builds(lambda text: [ChoiceText(0, text)], st.text(max_size=3)),
        st.builds(lambda text: [ChoiceReasoning(0, text)], st.text(max_size=3)),
        st.builds(lambda number: call(number, '{"a"', ": 1}"), st.integers(0, 9)),
    ),
    max_size=8,
)


@given(EVENTS, st.booleans())
def test_a_whole_reply_is_what_its_stream_adds_up_to(pieces: list[list[ReplyEvent]], hides: bool) -> None:
    """Whatever the mix; blocks of one type follow each other only where they are calls."""
    events: list[ReplyEvent] = [event for piece in pieces for event in piece]
    events.append(ChoiceFinished(0, "stop"))
    found = streamed(events, asked(hides_reasoning=hides))
    assert whole(events, asked(hides_reasoning=hides))["content"] == found.blocks
    kinds = [block["type"] for block in found.blocks]
    assert all(one != other or one == "tool_use" for one, other in pairwise(kinds))
