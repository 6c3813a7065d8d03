"""The Responses dialect's part of the goldens; written by regen_dialects."""

from typing import Any

import msgspec

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    ReplyEvent,
    ReplyFacts,
    ToolCallArguments,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.fields import FieldTable
from frontend.dialects.openai_responses import (
    FORMAT_FIELDS,
    REASONING_FIELDS,
    RESPONSES_FIELDS,
    TEXT_FIELDS,
    parse_responses,
)
from frontend.dialects.openai_responses_frames import ResponseFramer, asked_of, whole_response
from frontend.dialects.openai_responses_hosted import HOSTED_ITEMS
from frontend.dialects.openai_responses_items import (
    APPROVAL_FIELDS,
    CALL_FIELDS,
    MESSAGE_FIELDS,
    OUTPUT_FIELDS,
    PART_FIELDS,
    REASONING_ITEM_FIELDS,
    TOOLS_ITEM_FIELDS,
)
from frontend.dialects.openai_responses_stored import REFERENCE_FIELDS
from frontend.dialects.openai_responses_tools import (
    ALLOWED_FIELDS,
    CHOICE_FIELDS,
    CUSTOM_FIELDS,
    FUNCTION_FIELDS,
    NAMESPACE_FIELDS,
)
from frontend.errors import RequestError
from frontend.sse import frame
from protocol.errors import ErrorCode
from protocol.messages import Usage

RESPONSE_TABLES: dict[str, FieldTable] = {
    "responses": RESPONSES_FIELDS,
    "responses.text": TEXT_FIELDS,
    "responses.text.format": FORMAT_FIELDS,
    "responses.reasoning": REASONING_FIELDS,
    "responses.input[] message": MESSAGE_FIELDS,
    "responses.input[] part": PART_FIELDS,
    "responses.input[] reasoning": REASONING_ITEM_FIELDS,
    "responses.input[] call": CALL_FIELDS,
    "responses.input[] output": OUTPUT_FIELDS,
    "responses.input[] item_reference": REFERENCE_FIELDS,
    "responses.input[] additional_tools": TOOLS_ITEM_FIELDS,
    "responses.input[] mcp_approval_response": APPROVAL_FIELDS,
    **{f"responses.input[] {kind}": hosted.fields for kind, hosted in HOSTED_ITEMS.items()},
    "responses.tools[] function": FUNCTION_FIELDS,
    "responses.tools[] custom": CUSTOM_FIELDS,
    "responses.tools[] namespace": NAMESPACE_FIELDS,
    "responses.tool_choice": CHOICE_FIELDS,
    "responses.tool_choice allowed_tools": ALLOWED_FIELDS,
}
FACTS = ReplyFacts(id="resp_0123456789abcdef", model="smollm2", created=1_700_000_000)
PLAIN: dict[str, Any] = {"input": "Hello?", "instructions": "Be kind.", "metadata": {"run": "7"}, "temperature": 0.5}
# Reasoning told as a summary and sealed; a custom tool, and one in a namespace.
AGENTIC: dict[str, Any] = {
    "input": "Hello?",
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "tools": [
        {"type": "custom", "name": "patch"},
        {
            "type": "namespace",
            "name": "mcp__home",
            "description": "At home.",
            "tools": [{"type": "function", "name": "light"}],
        },
    ],
}
AGENTIC_EVENTS: list[ReplyEvent] = [
    ChoiceStarted(0),
    ChoiceReasoning(0, "Light first."),
    ToolCallStarted(0, 0, "call_a", "mcp__home__light"),
    ToolCallArguments(0, 0, "{}"),
    ToolCallFinished(0, 0),
    ToolCallStarted(0, 1, "call_b", "patch"),
    ToolCallArguments(0, 1, '{"input": "*** Begin\\n'),
    ToolCallArguments(0, 1, '*** End"}'),
    ToolCallFinished(0, 1),
    ChoiceFinished(0, "tool_calls"),
]
CUT_EVENTS: list[ReplyEvent] = [ChoiceStarted(0), ChoiceText(0, "Once upon"), ChoiceFinished(0, "length")]


def responses_framer(body: dict[str, Any], reply: ReplyFacts = FACTS) -> ResponseFramer:
    """The framer of a request with that body."""
    return ResponseFramer(reply, asked_of(parse_responses(body)))


def responses_transcript(made: ResponseFramer, events: list[ReplyEvent], failure: RequestError | None = None) -> str:
    """A whole stream as it goes over the wire."""
    sent = [content for event in events for content in made.frames(event)]
    sent += [] if failure is None else made.failed(failure)
    return b"".join(frame(content, name) for content, name in sent).decode()


def responses_whole(body: dict[str, Any], events: list[ReplyEvent], usage: Usage) -> str:
    """A reply that is not streamed, in one line as it is sent."""
    choice = WholeChoice(0)
    for event in events:
        choice.add(event)
    return msgspec.json.encode(whole_response(FACTS, parse_responses(body), [choice], usage)).decode() + "\n"


def response_failure() -> RequestError:
    """The failure in the goldens."""
    return RequestError(ErrorCode.DECODE_FAILED, "the row failed")
