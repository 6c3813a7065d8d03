"""Anthropic's messages on the way out: events to a stream's named frames, and the same frames to a whole reply.

Owns which block is open and its index; a whole reply is what a stream's frames add up to.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgspec

from frontend.dialects.anthropic_bodies import (
    BlockDelta,
    BlockStart,
    BlockStop,
    ContentBlock,
    Delta,
    InputJsonDelta,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    SignatureDelta,
    Stop,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    message_usage,
    tool_use_id,
)
from frontend.dialects.anthropic_signature import signature_of
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
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.dialect import SseEvent, named
from frontend.errors import RequestError
from protocol.messages import Usage

_PING: Final = named(Ping())


class MessageFramer:
    """One stream: the first event is message_start, blocks follow each other, each closed before the next."""

    def __init__(self, facts: ReplyFacts, generation: Generation) -> None:
        self._facts = facts
        self._generation = generation
        self._is_started = False
        self._index = -1
        self._open: ContentBlock | None = None
        self._hidden: list[str] = []
        self._end = ChoiceFinished(0, "stop")

    def frames(self, event: ReplyEvent) -> list[SseEvent]:
        """What is sent for an event, under the names of their types."""
        return [named(sent) for sent in self._events(event)]

    def keepalive(self) -> SseEvent:
        """The beginning while nothing was sent, then pings."""
        if self._is_started:
            return _PING
        (start,) = self._started()
        return named(start)

    def failed(self, error: RequestError) -> list[SseEvent]:
        """The envelope will do."""
        del error
        return []

    def _events(self, event: ReplyEvent) -> Sequence[StreamEvent]:
        sent: Sequence[StreamEvent]
        match event:
            case ChoiceStarted(cached_tokens=cached_tokens):
                sent = self._started(cached_tokens)
            case ChoiceText(text=text):
                sent = [*self._block(TextBlock(text="")), self._delta(TextDelta(text=text))] if text else []
            case ChoiceReasoning(text=text):
                sent = self._reasoned(text) if text else []
            case ToolCallStarted(id=id_, name=name):
                sent = [*self._closed(), *self._block(ToolUseBlock(id=tool_use_id(id_), name=name, input={}))]
            case ToolCallArguments(text=text):
                sent = [self._delta(InputJsonDelta(partial_json=text))] if text else []
            case ToolCallFinished() | ToolCallBroken():
                sent = self._closed()
            case ChoiceFinished():
                self._end = event
                sent = self._closed()
            case ReplyFinished(usage=usage):
                told = message_usage(usage, self._end.reasoning_tokens)
                sent = [MessageDelta(delta=self._stop(usage), usage=told), MessageStop()]
            case _ as never:
                assert_never(never)
        return sent

    def _started(self, cached_tokens: int = 0) -> list[StreamEvent]:
        """cached_tokens: as far as it is known; the end tells it again."""
        if self._is_started:
            return []
        self._is_started = True
        prompt_tokens = self._facts.prompt_tokens
        body = MessageBody(
            id=self._facts.id,
            model=self._facts.model,
            content=(),
            stop_reason=None,
            stop_sequence=None,
            usage=message_usage(Usage(prompt_tokens=prompt_tokens, completion_tokens=0, cached_tokens=cached_tokens)),
        )
        return [MessageStart(message=body)]

    def _block(self, block: ContentBlock) -> list[StreamEvent]:
        """Opens a block, unless one of its type is open, which goes on."""
        if type(self._open) is type(block):
            return []
        closed = self._closed()
        self._index += 1
        self._open = block
        return [*closed, BlockStart(index=self._index, content_block=block)]

    def _closed(self) -> list[StreamEvent]:
        """Closes the open block, if one is; reasoning is signed before that."""
        if self._open is None:
            return []
        signed: list[StreamEvent] = []
        if isinstance(self._open, ThinkingBlock):
            signed = [self._delta(SignatureDelta(signature=signature_of("".join(self._hidden))))]
            self._hidden = []
        self._open = None
        return [*signed, BlockStop(index=self._index)]

    def _reasoned(self, text: str) -> list[StreamEvent]:
        opened = self._block(ThinkingBlock(thinking="", signature=""))
        if self._generation.hides_reasoning:
            self._hidden.append(text)
            return opened
        return [*opened, self._delta(ThinkingDelta(thinking=text))]

    def _delta(self, delta: Delta) -> BlockDelta:
        return BlockDelta(index=self._index, delta=delta)

    def _stop(self, usage: Usage) -> Stop:
        asked = self._generation.max_tokens
        match self._end.reason:
            case "tool_calls":
                reason: StopReason = "tool_use"
            case "stop":
                reason = "end_turn" if self._end.stop is None else "stop_sequence"
            case "length":
                # Fewer than asked for: the context was full before.
                is_context = asked is not None and usage.completion_tokens < asked
                reason = "model_context_window_exceeded" if is_context else "max_tokens"
            case _ as never:
                assert_never(never)
        return Stop(stop_reason=reason, stop_sequence=self._end.stop if reason == "stop_sequence" else None)


def message_reply(facts: ReplyFacts, generation: Generation, choices: list[WholeChoice], usage: Usage) -> MessageBody:
    """The whole reply: what the frames of its one choice add up to."""
    framer = MessageFramer(facts, generation)
    blocks: list[_WholeBlock] = []
    stop: Stop | None = None
    for event in [*choices[0].events, ReplyFinished(usage)]:
        for sent in framer.frames(event):
            match sent.content:
                case BlockStart(content_block=block):
                    blocks.append(_WholeBlock(block))
                case BlockDelta(delta=delta):
                    blocks[-1].add(delta)
                case MessageDelta(delta=stop):
                    pass
                case _:
                    pass
    return MessageBody(
        id=facts.id,
        model=facts.model,
        content=tuple(block.whole() for block in blocks),
        stop_reason=None if stop is None else stop.stop_reason,
        stop_sequence=None if stop is None else stop.stop_sequence,
        usage=message_usage(usage, choices[0].reasoning_tokens),
    )


class _WholeBlock:
    """A block while its deltas come."""

    def __init__(self, start: ContentBlock) -> None:
        self._start = start
        self._parts: list[str] = []
        self._signature = ""

    def add(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text) | ThinkingDelta(thinking=text) | InputJsonDelta(partial_json=text):
                self._parts.append(text)
            case SignatureDelta(signature=signature):
                self._signature = signature
            case _ as never:
                assert_never(never)

    def whole(self) -> ContentBlock:
        text = "".join(self._parts)
        match self._start:
            case TextBlock():
                return TextBlock(text=text)
            case ThinkingBlock():
                return ThinkingBlock(thinking=text, signature=self._signature)
            case ToolUseBlock(id=id_, name=name):
                return ToolUseBlock(id=id_, name=name, input=_input(text))
            case _ as never:
                assert_never(never)


def _input(text: str) -> dict[str, Any]:
    """A call's arguments; those that max_tokens has cut off are handed on as they are, under a name no tool has."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"INVALID_JSON": text}
