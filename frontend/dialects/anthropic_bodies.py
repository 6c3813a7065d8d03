"""What Anthropic's messages look like on the wire: blocks, the whole message, and the events of a stream.

Owns shapes alone; which comes when is anthropic_frames'.
"""

from typing import Literal

import msgspec

from protocol.messages import Usage

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Anthropic's counts: input_tokens are those that were computed, beside those read from a cache."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class TextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the reply."""

    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning. signature: for the client to send back."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A call. input: empty at a stream's start, the arguments in a whole reply."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, object]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply, or an empty one at a stream's start."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[ContentBlock, ...]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageStart(msgspec.Struct, frozen=True, kw_only=True):
    """First event of a stream."""

    type: Literal["message_start"] = "message_start"
    message: MessageBody


class BlockStart(msgspec.Struct, frozen=True, kw_only=True):
    """A block begins, empty."""

    type: Literal["content_block_start"] = "content_block_start"
    index: int
    content_block: ContentBlock


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More text."""

    type: Literal["text_delta"] = "text_delta"
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More reasoning."""

    type: Literal["thinking_delta"] = "thinking_delta"
    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Last delta of a thinking block."""

    type: Literal["signature_delta"] = "signature_delta"
    signature: str


class InputJsonDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More of a call's arguments, as text."""

    type: Literal["input_json_delta"] = "input_json_delta"
    partial_json: str


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a block gains."""

    type: Literal["content_block_delta"] = "content_block_delta"
    index: int
    delta: Delta


class BlockStop(msgspec.Struct, frozen=True, kw_only=True):
    """A block is whole."""

    type: Literal["content_block_stop"] = "content_block_stop"
    index: int


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why the message ended. stop_sequence: which of the request's, if one did."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The end's reason and the final counts."""

    type: Literal["message_delta"] = "message_delta"
    delta: Stop
    usage: MessageUsage


class MessageStop(msgspec.Struct, frozen=True, kw_only=True):
    """Last event of a stream."""

    type: Literal["message_stop"] = "message_stop"


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life."""

    type: Literal["ping"] = "ping"


StreamEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping


def message_usage(usage: Usage) -> MessageUsage:
    """The wire's counts in Anthropic's words."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


def tool_use_id(call_id: str) -> str:
    """Anthropic's clients know calls by this prefix."""
    return "toolu_" + call_id.removeprefix("call_")
