"""Rewrites goldens/sse, errors.json and fields.json: `python -m tests.frontend.dialects.regen_dialects`."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from frontend.dialects import openai_chat, openai_completions
from frontend.dialects.base import (
    AskedLogprobs,
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    TokenChance,
    TokenEntry,
    ToolCallArguments,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.fields import FieldTable
from frontend.dialects.openai_constraints import JSON_SCHEMA_FIELDS, RESPONSE_FORMAT_FIELDS, STRUCTURED_FIELDS
from frontend.dialects.openai_fields import STREAM_OPTIONS_FIELDS
from frontend.dialects.openai_messages import (
    CALL_FIELDS,
    CALLED_FIELDS,
    CUSTOM_CALLED_FIELDS,
    MESSAGE_FIELDS,
    PART_FIELDS,
)
from frontend.dialects.openai_tools import (
    ALLOWED_FIELDS,
    CHOICE_FIELDS,
    FUNCTION_FIELDS,
    NAMED_FIELDS,
    TOOL_ITEM_FIELDS,
)
from frontend.errors import HTTP_MEANINGS, RequestError, error_body
from frontend.sse import DONE, frame
from protocol.errors import ErrorCode
from protocol.messages import Usage
from tests.frontend.dialects.anthropic_examples import ANTHROPIC_TABLES, anthropic_errors, anthropic_texts
from tests.frontend.dialects.regen_responses import (
    AGENTIC,
    AGENTIC_EVENTS,
    CUT_EVENTS,
    FACTS,
    PLAIN,
    RESPONSE_TABLES,
    response_failure,
    responses_framer,
    responses_transcript,
    responses_whole,
)

GOLDENS = Path(__file__).parents[3] / "goldens"

USAGE = Usage(prompt_tokens=21, completion_tokens=8, cached_tokens=16)
ONE_CHOICE: list[ReplyEvent] = [
    ChoiceStarted(0),
    ChoiceText(0, "Hello"),
    ChoiceText(0, ' "world" 😀\n'),
    ChoiceFinished(0, "stop"),
    ReplyFinished(USAGE),
]
TWO_CHOICES: list[ReplyEvent] = [
    ChoiceStarted(0),
    ChoiceText(0, "one"),
    ChoiceStarted(1),
    ChoiceText(1, "two"),
    ChoiceFinished(1, "stop"),
    ChoiceText(0, " more"),
    ChoiceFinished(0, "length"),
    ReplyFinished(USAGE),
]
LOGPROB_EVENTS: list[ReplyEvent] = [
    ChoiceStarted(0),
    ChoiceText(
        0,
        "Say",
        (
            TokenEntry(TokenChance(1, b"<s>", None), (), 0),
            TokenEntry(TokenChance(20, b"Say", -2.5), (TokenChance(21, b"Do", -0.25),), 0),
        ),
        is_prompt=True,
    ),
    ChoiceText(
        0,
        " 🦊",
        (
            TokenEntry(TokenChance(30, b" ", -0.5), (TokenChance(30, b" ", -0.5), TokenChance(31, b" a", -1.5)), 3),
            TokenEntry(TokenChance(40, b"\xf0\x9f", -0.75), (TokenChance(41, b"x", -0.125),), 4),
            TokenEntry(TokenChance(42, b"\xa6\x8a", -0.0), (TokenChance(42, b"\xa6\x8a", -0.0),), 4),
        ),
    ),
    ChoiceFinished(0, "stop"),
    ReplyFinished(USAGE),
]
CALLS: list[ReplyEvent] = [
    ChoiceStarted(0),
    ChoiceReasoning(0, "Two cities"),
    ChoiceReasoning(0, ", two calls."),
    ChoiceText(0, "Looking it up. "),
    ToolCallStarted(0, 0, "call_a", "weather"),
    ToolCallArguments(0, 0, '{"city": '),
    ToolCallArguments(0, 0, '"Oslo"}'),
    ToolCallFinished(0, 0),
    ToolCallStarted(0, 1, "call_b", "now"),
    ToolCallArguments(0, 1, "{}"),
    ToolCallFinished(0, 1),
    ChoiceFinished(0, "tool_calls"),
    ReplyFinished(USAGE),
]
TABLES: dict[str, FieldTable] = {
    "chat": openai_chat.CHAT_FIELDS,
    "chat.messages[]": MESSAGE_FIELDS,
    "chat.messages[].content[]": PART_FIELDS,
    "chat.messages[].tool_calls[]": CALL_FIELDS,
    "chat.messages[].tool_calls[].function": CALLED_FIELDS,
    "chat.messages[].tool_calls[].custom": CUSTOM_CALLED_FIELDS,
    "chat.tools[]": TOOL_ITEM_FIELDS,
    "chat.tool_choice": CHOICE_FIELDS,
    "chat.tool_choice.function": NAMED_FIELDS,
    "chat.tool_choice.allowed_tools": ALLOWED_FIELDS,
    "chat.tools[].function": FUNCTION_FIELDS,
    "completions": openai_completions.COMPLETION_FIELDS,
    "response_format": RESPONSE_FORMAT_FIELDS,
    "response_format.json_schema": JSON_SCHEMA_FIELDS,
    "structured_outputs": STRUCTURED_FIELDS,
    "stream_options": STREAM_OPTIONS_FIELDS,
    **ANTHROPIC_TABLES,
    **RESPONSE_TABLES,
}

Frames = Callable[[ReplyFacts, ReplyEvent, bool], list[msgspec.Struct]]


def facts(prefix: str) -> ReplyFacts:
    """The same in every golden."""
    return ReplyFacts(
        id=f"{prefix}-0123456789abcdef", model="smollm2", created=1_700_000_000, fingerprint="fp_0123456789ab"
    )


def transcript(frames: Frames, reply: ReplyFacts, events: list[ReplyEvent], include_usage: bool) -> str:
    """A whole stream as it goes over the wire."""
    sent = [frame(content) for event in events for content in frames(reply, event, include_usage)]
    return b"".join([*sent, DONE]).decode()


def whole(content: msgspec.Struct) -> str:
    """A reply that is not streamed, in one line as it is sent."""
    return msgspec.json.encode(content).decode() + "\n"


def golden_texts() -> dict[str, str]:
    """Every golden of this part, by its path in goldens/."""
    chat, completion = facts("chatcmpl"), facts("cmpl")
    choices = [
        WholeChoice(0, ["Hello", ' "world" 😀\n'], "stop"),
        WholeChoice(1, ["two"], "length"),
    ]
    broken = [frame(content) for event in ONE_CHOICE[:2] for content in openai_chat.chat_frames(chat, event, False)]
    broken.append(frame(error_body(RequestError(ErrorCode.DECODE_FAILED, "the row failed"))))
    chat_frames, completion_frames = openai_chat.chat_frames, openai_completions.completion_frames
    asked = AskedLogprobs(top=2)
    gained = [event for event in LOGPROB_EVENTS if isinstance(event, ChoiceText)]
    chat_events = [event for event in LOGPROB_EVENTS if event is not gained[0]]
    chat_asked, completion_asked = replace(chat, logprobs=asked), replace(completion, logprobs=asked)
    spelled = WholeChoice(0)
    spelled.add(gained[1])
    echoed = WholeChoice(0)
    for event in gained:
        echoed.add(event)
    called, silent = WholeChoice(0), WholeChoice(0)
    for event in CALLS:
        called.add(event)
        if not isinstance(event, ChoiceReasoning | ChoiceText):
            silent.add(event)
    return {
        "sse/chat.txt": transcript(chat_frames, chat, ONE_CHOICE, False),
        "sse/chat_usage.txt": transcript(chat_frames, chat, ONE_CHOICE, True),
        "sse/chat_two_choices.txt": transcript(chat_frames, chat, TWO_CHOICES, True),
        "sse/chat_broken.txt": b"".join(broken).decode(),
        "sse/chat_calls.txt": transcript(chat_frames, chat, CALLS, False),
        "sse/chat_calls_whole.json": whole(openai_chat.chat_reply(chat, [called], USAGE)),
        "sse/chat_calls_alone_whole.json": whole(openai_chat.chat_reply(chat, [silent], USAGE)),
        "sse/completions.txt": transcript(completion_frames, completion, ONE_CHOICE, False),
        "sse/completions_usage.txt": transcript(completion_frames, completion, ONE_CHOICE, True),
        "sse/completions_two_choices.txt": transcript(completion_frames, completion, TWO_CHOICES, True),
        "sse/chat_whole.json": whole(openai_chat.chat_reply(chat, choices, USAGE)),
        "sse/completions_whole.json": whole(openai_completions.completion_reply(completion, choices, USAGE)),
        "sse/chat_logprobs.txt": transcript(chat_frames, chat_asked, chat_events, False),
        "sse/completions_logprobs.txt": transcript(completion_frames, completion_asked, LOGPROB_EVENTS, False),
        "sse/chat_logprobs_whole.json": whole(openai_chat.chat_reply(chat_asked, [spelled], USAGE)),
        "sse/completions_logprobs_whole.json": whole(
            openai_completions.completion_reply(completion_asked, [echoed], USAGE)
        ),
        **anthropic_texts(ONE_CHOICE, CALLS),
        "errors_anthropic.json": _pretty(anthropic_errors()),
        **_response_texts(),
        "errors.json": _pretty({code.value: asdict(meaning) for code, meaning in HTTP_MEANINGS.items()}),
        "fields.json": _pretty({name: _verdicts(table) for name, table in TABLES.items()}),
    }


def _response_texts() -> dict[str, str]:
    asked = replace(FACTS, logprobs=AskedLogprobs(top=2))
    spelled = [event for event in LOGPROB_EVENTS if not (isinstance(event, ChoiceText) and event.is_prompt)]
    ended: list[ReplyEvent] = [ReplyFinished(USAGE)]
    return {
        "sse/responses.txt": responses_transcript(responses_framer(PLAIN), ONE_CHOICE),
        "sse/responses_logprobs.txt": responses_transcript(responses_framer(PLAIN, asked), spelled),
        "sse/responses_calls.txt": responses_transcript(responses_framer(PLAIN), CALLS),
        "sse/responses_agentic.txt": responses_transcript(responses_framer(AGENTIC), AGENTIC_EVENTS + ended),
        "sse/responses_cut.txt": responses_transcript(responses_framer(PLAIN), CUT_EVENTS + ended),
        "sse/responses_failed.txt": responses_transcript(responses_framer(PLAIN), ONE_CHOICE[:2], response_failure()),
        "sse/responses_whole.json": responses_whole(PLAIN, ONE_CHOICE[:-1], USAGE),
        "sse/responses_calls_whole.json": responses_whole(PLAIN, CALLS[:-1], USAGE),
    }


def _verdicts(table: FieldTable) -> dict[str, object]:
    return {name: {"verdict": type(rule).__name__, **asdict(rule)} for name, rule in table.items()}


def _pretty(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes them all."""
    for name, text in golden_texts().items():
        path = GOLDENS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
