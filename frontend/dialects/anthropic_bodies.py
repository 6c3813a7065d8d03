"""What Anthropic's messages look like on the wire: blocks, the whole message, and the events of a stream.

Owns shapes alone; which comes when is anthropic_frames'.
"""

from typing import Any, Literal

import msgspec

from protocol.messages import Usage

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class Typed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What says by its type what it is."""


class MessageTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """thinking_tokens: among the output's, with those that begin and end the thinking."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Anthropic's counts: input_tokens are those that were computed, beside those read from a cache."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int
    output_tokens_details: MessageTokensDetails


class TextBlock(Typed, frozen=True, kw_only=True, tag="text"):
    """Text of the reply."""

    text: str


class ThinkingBlock(Typed, frozen=True, kw_only=True, tag="thinking"):
    """Reasoning. signature: for the client to send back."""

    thinking: str
    signature: str


class ToolUseBlock(Typed, frozen=True, kw_only=True, tag="tool_use"):
    """A call. input: empty at a stream's start, the arguments in a whole reply."""

    id: str
    name: str
    input: dict[str, Any]


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


class MessageStart(Typed, frozen=True, kw_only=True, tag="message_start"):
    """First event of a stream."""

    message: MessageBody


class BlockStart(Typed, frozen=True, kw_only=True, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: ContentBlock


class TextDelta(Typed, frozen=True, kw_only=True, tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(Typed, frozen=True, kw_only=True, tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignatureDelta(Typed, frozen=True, kw_only=True, tag="signature_delta"):
    """Last delta of a thinking block."""

    signature: str


class InputJsonDelta(Typed, frozen=True, kw_only=True, tag="input_json_delta"):
    """More of a call's arguments, as text."""

    partial_json: str


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockDelta(Typed, frozen=True, kw_only=True, tag="content_block_delta"):
    """What a block gains."""

    index: int
    delta: Delta


class BlockStop(Typed, frozen=True, kw_only=True, tag="content_block_stop"):
    """A block is whole."""

    index: int


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why the message ended. stop_sequence: which of the request's, if one did."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Typed, frozen=True, kw_only=True, tag="message_delta"):
    """The end's reason and the final counts."""

    delta: Stop
    usage: MessageUsage


class MessageStop(Typed, frozen=True, kw_only=True, tag="message_stop"):
    """Last event of a stream."""


class Ping(Typed, frozen=True, kw_only=True, tag="ping"):
    """A sign of life."""


StreamEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping


def message_usage(usage: Usage, thinking_tokens: int = 0) -> MessageUsage:
    """The wire's counts in Anthropic's words."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        output_tokens_details=MessageTokensDetails(thinking_tokens=thinking_tokens),
    )


def tool_use_id(call_id: str) -> str:
    """Anthropic's clients know calls by this prefix."""
    return "toolu_" + call_id.removeprefix("call_")
