"""The order of a Responses stream, its items, and that a whole reply is what the stream ends with."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    ReplyEvent,
    ReplyFinished,
    ToolCallArguments,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.openai_responses import parse_responses
from frontend.dialects.openai_responses_frames import whole_response
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from tests.frontend.dialects.regen_dialects import CALLS, LOGPROB_EVENTS, ONE_CHOICE, USAGE
from tests.frontend.dialects.regen_responses import (
    AGENTIC,
    AGENTIC_EVENTS,
    CUT_EVENTS,
    FACTS,
    PLAIN,
    response_failure,
    responses_framer,
)

ENDED: list[ReplyEvent] = [ReplyFinished(USAGE)]
STREAMS: list[tuple[dict[str, Any], list[ReplyEvent]]] = [
    (PLAIN, ONE_CHOICE),
    (PLAIN, CALLS),
    (PLAIN, [event for event in LOGPROB_EVENTS if not (isinstance(event, ChoiceText) and event.is_prompt)]),
    (AGENTIC, AGENTIC_EVENTS + ENDED),
    (PLAIN, CUT_EVENTS + ENDED),
    (PLAIN, [ChoiceStarted(0), ChoiceFinished(0, "stop"), *ENDED]),
    (PLAIN, [ChoiceStarted(0), ChoiceReasoning(0, "Hm"), ChoiceFinished(0, "length"), *ENDED]),
    (
        PLAIN,
        [
            ChoiceStarted(0),
            ToolCallStarted(0, 0, "call_a", "weather"),
            ToolCallArguments(0, 0, '{"ci'),
            ChoiceFinished(0, "length"),
            *ENDED,
        ],
    ),
]


def sent(body: dict[str, Any], events: list[ReplyEvent], failure: RequestError | None = None) -> list[dict[str, Any]]:
    """The events as a client decodes them."""
    made = responses_framer(body)
    frames = [content for event in events for content in made.frames(event)]
    frames += [] if failure is None else made.failed(failure)
    decoded = [msgspec.json.decode(msgspec.json.encode(content)) for content, _ in frames]
    assert [event["type"] for event in decoded] == [name for _, name in frames]
    return decoded


@pytest.mark.parametrize(("body", "events"), STREAMS)
def test_events_are_numbered_and_paired(body: dict[str, Any], events: list[ReplyEvent]) -> None:
    """From created to the end without a gap; each item is added once, done once, and stands under its index."""
    stream = sent(body, events)
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    assert [event["type"] for event in stream[:2]] == ["response.created", "response.in_progress"]
    assert stream[-1]["type"] in ("response.completed", "response.incomplete")
    output = stream[-1]["response"]["output"]
    for kind in ("added", "done"):
        items = [event for event in stream if event["type"] == f"response.output_item.{kind}"]
        assert [event["output_index"] for event in items] == list(range(len(output)))
        assert [event["item"]["id"] for event in items] == [item["id"] for item in output]
    done = [event["item"] for event in stream if event["type"] == "response.output_item.done"]
    assert done == output
    assert max(Counter(item["id"] for item in output).values()) == 1


@pytest.mark.parametrize(("body", "events"), STREAMS)
def test_deltas_are_the_whole(body: dict[str, Any], events: list[ReplyEvent]) -> None:
    """The joined deltas of each item are what its `done` says."""
    stream = sent(body, events)
    joined: dict[str, str] = {}
    ends = {"text", "arguments", "input"}
    for event in stream:
        if event["type"].endswith(".delta"):
            joined[event["item_id"]] = joined.get(event["item_id"], "") + event["delta"]
    told = {
        event["item_id"]: event[name]
        for event in stream
        for name in ends & set(event)
        if event["type"].endswith(".done") and event[name]
    }
    assert joined == told


@pytest.mark.parametrize(("body", "events"), STREAMS)
def test_the_official_models_take_every_event(body: dict[str, Any], events: list[ReplyEvent]) -> None:
    """OpenAI's own types, with every required field."""
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in sent(body, events, response_failure()):
        read = adapter.validate_python(event)
        assert (read.type, read.sequence_number) == (event["type"], event["sequence_number"])


@pytest.mark.parametrize(("body", "events"), STREAMS)
def test_a_whole_reply_is_what_the_stream_ends_with(body: dict[str, Any], events: list[ReplyEvent]) -> None:
    """Field by field, and OpenAI's own type takes it."""
    choice = WholeChoice(0)
    for event in events[:-1]:
        choice.add(event)
    whole = msgspec.json.decode(msgspec.json.encode(whole_response(FACTS, parse_responses(body), [choice], USAGE)))
    assert whole == sent(body, events)[-1]["response"]
    read = Response.model_validate(whole)
    assert [item.id for item in read.output] == [item["id"] for item in whole["output"]]


def test_endings() -> None:
    """Complete, cut in a message, cut in a call, and without a word."""
    cut = sent(PLAIN, CUT_EVENTS + ENDED)[-1]
    assert (cut["type"], cut["response"]["status"]) == ("response.incomplete", "incomplete")
    assert cut["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in cut["response"]["output"]] == ["incomplete"]
    call = sent(*STREAMS[-1])[-1]["response"]["output"]
    assert [(item["status"], item["arguments"]) for item in call] == [("incomplete", '{"ci')]
    silent = sent(PLAIN, [ChoiceStarted(0), ChoiceFinished(0, "stop"), *ENDED])[-1]["response"]
    assert (silent["status"], silent["output"][0]["content"][0]["text"]) == ("completed", "")


def test_a_failure_ends_the_stream() -> None:
    """`error`, then the response as it failed, with a code that clients know."""
    stream = sent(PLAIN, ONE_CHOICE[:2], RequestError(ErrorCode.DECODE_FAILED, "the row failed"))
    assert stream[-2] == {
        "type": "error",
        "sequence_number": len(stream) - 2,
        "code": "decode_failed",
        "message": "the row failed",
        "param": None,
    }
    response = stream[-1]["response"]
    assert (stream[-1]["type"], response["status"], response["store"]) == ("response.failed", "failed", True)
    assert response["error"] == {"code": "server_error", "message": "the row failed"}


@pytest.mark.parametrize(("body", "events"), STREAMS)
def test_a_failed_response_has_what_came(body: dict[str, Any], events: list[ReplyEvent]) -> None:
    """At every event: items that were done as they were told, an open one as incomplete, and no event of its end."""
    for count in range(1, len(events)):
        stream = sent(body, events[:count], response_failure())
        before, (error, failed) = stream[:-2], stream[-2:]
        assert before == sent(body, events[:count])
        assert [error["sequence_number"], failed["sequence_number"]] == [len(stream) - 2, len(stream) - 1]
        done = [event["item"] for event in before if event["type"] == "response.output_item.done"]
        added = [event["item"] for event in before if event["type"] == "response.output_item.added"]
        output = failed["response"]["output"]
        assert output[: len(done)] == done
        assert [(item["id"], item["status"]) for item in output[len(done) :]] == [
            (item["id"], "incomplete") for item in added[len(done) :]
        ]
        texts = [event["delta"] for event in before if event["type"] == "response.output_text.delta"]
        parts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        assert "".join(parts) == "".join(texts)


def test_tool_names_go_back_as_they_came() -> None:
    """A custom tool's call is its text, one of a namespace has both names, and one that nobody knows is told."""
    output = sent(AGENTIC, AGENTIC_EVENTS + ENDED)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call", "custom_tool_call"]
    assert (output[1]["name"], output[1]["namespace"], output[1]["call_id"]) == ("light", "mcp__home", "call_a")
    assert (output[2]["name"], output[2]["input"]) == ("patch", "*** Begin\n*** End")
    unknown = sent(AGENTIC, [ChoiceStarted(0), ToolCallStarted(0, 0, "call_x", "nobody"), *AGENTIC_EVENTS[-1:], *ENDED])
    assert unknown[-1]["response"]["output"][0]["name"] == "nobody"


def test_reasoning_goes_where_the_client_looks() -> None:
    """As it is, or as a summary where one was asked for; sealed only if that was."""
    raw = sent(PLAIN, CALLS)[-1]["response"]["output"][0]
    assert raw["content"] == [{"type": "reasoning_text", "text": "Two cities, two calls."}]
    assert (raw["summary"], "encrypted_content" in raw) == ([], False)
    told = sent(AGENTIC, AGENTIC_EVENTS + ENDED)[-1]["response"]["output"][0]
    assert told["summary"] == [{"type": "summary_text", "text": "Light first."}]
    assert ("content" in told, told["encrypted_content"].startswith("convoy-reasoning:")) == (False, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"input": "a\\nb é"}', "a\nb é"),
        ('{"input": 7}', '{"input": 7}'),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"input": "cut', '{"input": "cut'),
        ("[1]", "[1]"),
        ("[" * 5_000, "[" * 5_000),
    ],
)
def test_a_custom_calls_input(arguments: str, expected: str) -> None:
    """The one string; what the model got wrong is not hidden."""
    events: list[ReplyEvent] = [
        ChoiceStarted(0),
        ToolCallStarted(0, 0, "call_b", "patch"),
        *(ToolCallArguments(0, 0, letter) for letter in arguments[:50]),
        ToolCallArguments(0, 0, arguments[50:]),
        ChoiceFinished(0, "tool_calls"),
        *ENDED,
    ]
    assert sent(AGENTIC, events)[-1]["response"]["output"][0]["input"] == expected
