"""What the Responses API sends: a response, its output items and their parts. Fields and their order are OpenAI's.

Owns no rule of when a thing is sent; the frames do.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from frontend.dialects.openai_logprobs import ChatEntry
from protocol.messages import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message. annotations: always empty, nothing is searched."""

    annotations: tuple[()] = ()
    logprobs: tuple[ChatEntry, ...] = ()
    text: str


class ReasoningText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    """Reasoning as the model wrote it."""

    text: str


class SummaryText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="summary_text"):
    """Where a summary was asked for: the reasoning itself, which nobody condenses here."""

    text: str


class MessageItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the model says."""

    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: tuple[OutputText, ...] = ()


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought. encrypted_content: only where it was asked for."""

    id: str
    summary: tuple[SummaryText, ...] = ()
    content: tuple[ReasoningText, ...] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: ItemStatus


class FunctionCallItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a function. arguments: a JSON object, as text. namespace: of a tool that came in one."""

    id: str
    status: ItemStatus
    arguments: str = ""
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET


class CustomCallItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool. input: plain text."""

    id: str
    status: ItemStatus
    call_id: str
    input: str = ""
    name: str
    namespace: str | UnsetType = UNSET


OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """cached_tokens: prompt tokens that were not computed again. Nothing is charged for writing them."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """reasoning_tokens: among the output tokens."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts under this API's names."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response is incomplete; a full context counts as this, too."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class FailureBody(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """As asked."""

    effort: str | None = None
    summary: str | None = None


class TextConfig(msgspec.Struct, frozen=True, kw_only=True):
    """As asked. format: OpenAI's object."""

    format: dict[str, Any]
    verbosity: str | None = None


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A response, whole or so far. What a request left out is null where the server's own setting counts."""

    id: str = ""
    object: Literal["response"] = "response"
    created_at: int = 0
    status: ResponseStatus = "in_progress"
    background: Literal[False] = False
    error: FailureBody | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str = ""
    output: tuple[OutputItem, ...] = ()
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningConfig = ReasoningConfig()
    safety_identifier: str | None = None
    service_tier: Literal["default"] = "default"
    store: bool = True
    temperature: float | None = None
    text: TextConfig
    tool_choice: Any = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None
    metadata: dict[str, str] = {}


def response_usage(usage: Usage, reasoning_tokens: int) -> ResponseUsage:
    """The wire's counts in this API's words."""
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )
