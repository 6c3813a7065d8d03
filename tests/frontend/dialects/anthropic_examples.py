"""Anthropic's goldens: streams and whole replies of the same events, errors, fields. Written by regen_dialects."""

import msgspec

from frontend.dialects.anthropic import ANTHROPIC_FIELDS, FORMAT_FIELDS, OUTPUT_CONFIG_FIELDS, THINKING_FIELDS
from frontend.dialects.anthropic_blocks import BLOCK_FIELDS
from frontend.dialects.anthropic_errors import ANTHROPIC_ENVELOPE
from frontend.dialects.anthropic_frames import MessageFramer, message_reply
from frontend.dialects.anthropic_hosted import ERROR_FIELDS, HELD_FIELDS
from frontend.dialects.anthropic_messages import MESSAGE_FIELDS, SYSTEM_MESSAGE_FIELDS
from frontend.dialects.anthropic_tools import TOOL_CHOICE_FIELDS, TOOL_FIELDS
from frontend.dialects.base import ChoiceFinished, Generation, ReplyEvent, ReplyFacts, ReplyFinished, WholeChoice
from frontend.dialects.fields import FieldTable
from frontend.errors import HTTP_MEANINGS, RequestError
from frontend.sse import frame
from protocol.errors import ErrorCode

FACTS = ReplyFacts(id="msg_0123456789abcdef", model="smollm2", created=1_700_000_000, prompt_tokens=21)
PLAIN = Generation(model=None, prompts=())
HIDDEN = Generation(model=None, prompts=(), hides_reasoning=True)

ANTHROPIC_TABLES: dict[str, FieldTable] = {
    "messages": ANTHROPIC_FIELDS,
    "messages.messages[]": MESSAGE_FIELDS,
    "messages.messages[] of the role system": SYSTEM_MESSAGE_FIELDS,
    **{f"messages.messages[].content[] of the type {kind}": table for kind, table in BLOCK_FIELDS.items()},
    **{f"messages.messages[].content[] that holds {kind}": table for kind, table in HELD_FIELDS.items()},
    "messages.messages[].content[] that holds an error": ERROR_FIELDS,
    "messages.tools[]": TOOL_FIELDS,
    "messages.tool_choice": TOOL_CHOICE_FIELDS,
    "messages.thinking": THINKING_FIELDS,
    "messages.output_config": OUTPUT_CONFIG_FIELDS,
    "messages.output_config.format": FORMAT_FIELDS,
}


def anthropic_texts(text: list[ReplyEvent], calls: list[ReplyEvent]) -> dict[str, str]:
    """Every transcript, by its path in goldens/. text and calls: the events of two whole replies."""
    (usage,) = [event for event in text if isinstance(event, ReplyFinished)]
    stopped = [*text[:3], ChoiceFinished(0, "stop", "END"), usage]
    cut = [*calls[:6], ChoiceFinished(0, "length"), usage]
    return {
        "sse/anthropic.txt": _transcript(text, PLAIN),
        "sse/anthropic_whole.json": _whole(text, PLAIN),
        "sse/anthropic_stop_sequence.txt": _transcript(stopped, PLAIN),
        "sse/anthropic_calls.txt": _transcript(calls, PLAIN),
        "sse/anthropic_calls_whole.json": _whole(calls, PLAIN),
        "sse/anthropic_calls_hidden.txt": _transcript(calls, HIDDEN),
        "sse/anthropic_call_cut.txt": _transcript(cut, PLAIN),
        "sse/anthropic_call_cut_whole.json": _whole(cut, PLAIN),
        "sse/anthropic_broken.txt": _broken(text[:2]),
    }


def anthropic_errors() -> object:
    """How each code is told."""
    return {code.value: msgspec.to_builtins(_told(RequestError(code, "why"))) for code in HTTP_MEANINGS}


def _told(error: RequestError) -> msgspec.Struct:
    return ANTHROPIC_ENVELOPE.body(error, "req-0123456789abcdef")


def _transcript(events: list[ReplyEvent], generation: Generation) -> str:
    framer = MessageFramer(FACTS, generation)
    return b"".join(frame(sent.content, sent.name) for event in events for sent in framer.frames(event)).decode()


def _broken(events: list[ReplyEvent]) -> str:
    """A silence, a beginning, and the failure of its row."""
    framer = MessageFramer(FACTS, PLAIN)
    sent = [framer.keepalive(), framer.keepalive(), *(sent for event in events for sent in framer.frames(event))]
    error = frame(_told(RequestError(ErrorCode.DECODE_FAILED, "the row failed")), ANTHROPIC_ENVELOPE.event)
    return b"".join([*(frame(each.content, each.name) for each in sent), error]).decode()


def _whole(events: list[ReplyEvent], generation: Generation) -> str:
    choice = WholeChoice(0)
    for event in events[:-1]:
        choice.add(event)
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return msgspec.json.encode(message_reply(FACTS, generation, [choice], last.usage)).decode() + "\n"
