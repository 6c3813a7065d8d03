"""The events of a Responses stream, each under its name; fields and their order are OpenAI's."""

import msgspec

from frontend.dialects.openai_logprobs import ChatEntry
from frontend.dialects.openai_responses_objects import (
    OutputItem,
    OutputText,
    ReasoningText,
    ResponseBody,
    SummaryText,
)


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """sequence_number: 0 for a stream's first event, and one more for each further one."""

    sequence_number: int


class ResponseCreated(ResponseEvent, frozen=True, kw_only=True, tag="response.created"):
    """First of all."""

    response: ResponseBody


class ResponseInProgress(ResponseEvent, frozen=True, kw_only=True, tag="response.in_progress"):
    """Second of all."""

    response: ResponseBody


class ResponseCompleted(ResponseEvent, frozen=True, kw_only=True, tag="response.completed"):
    """Last of all: the model came to its end."""

    response: ResponseBody


class ResponseIncomplete(ResponseEvent, frozen=True, kw_only=True, tag="response.incomplete"):
    """Last of all: it ran out of tokens."""

    response: ResponseBody


class ResponseFailed(ResponseEvent, frozen=True, kw_only=True, tag="response.failed"):
    """Last of all: the engine failed."""

    response: ResponseBody


class ResponseErrorEvent(ResponseEvent, frozen=True, kw_only=True, tag="error"):
    """Before `response.failed`, for clients that look for an error."""

    code: str
    message: str
    param: str | None = None


class OutputItemAdded(ResponseEvent, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: OutputItem


class OutputItemDone(ResponseEvent, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: OutputItem


class ItemEvent(ResponseEvent, frozen=True, kw_only=True):
    """Of one output item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent, frozen=True, kw_only=True):
    """Of a content part; there is one to an item."""

    content_index: int = 0


class ContentPartAdded(PartEvent, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A part begins."""

    part: OutputText | ReasoningText


class ContentPartDone(PartEvent, frozen=True, kw_only=True, tag="response.content_part.done"):
    """A part is whole."""

    part: OutputText | ReasoningText


class OutputTextDelta(PartEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More of a message."""

    delta: str
    logprobs: tuple[ChatEntry, ...] = ()


class OutputTextDone(PartEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    """A message's text is whole."""

    text: str
    logprobs: tuple[ChatEntry, ...] = ()


class ReasoningTextDelta(PartEvent, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More reasoning."""

    delta: str


class ReasoningTextDone(PartEvent, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """The reasoning is whole."""

    text: str


class SummaryEvent(ItemEvent, frozen=True, kw_only=True):
    """Of a summary part; there is one to an item."""

    summary_index: int = 0


class SummaryPartAdded(SummaryEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"):
    """A summary begins."""

    part: SummaryText


class SummaryPartDone(SummaryEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"):
    """A summary is whole."""

    part: SummaryText


class SummaryTextDelta(SummaryEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta"):
    """More of a summary."""

    delta: str


class SummaryTextDone(SummaryEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"):
    """A summary's text is whole."""

    text: str


class ArgumentsDelta(ItemEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(ItemEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """A call's arguments are whole. name: older clients require it here."""

    name: str
    arguments: str


class CustomInputDelta(ItemEvent, frozen=True, kw_only=True, tag="response.custom_tool_call_input.delta"):
    """More of a custom call's input; here all of it, for its text is known only when its JSON is whole."""

    delta: str


class CustomInputDone(ItemEvent, frozen=True, kw_only=True, tag="response.custom_tool_call_input.done"):
    """A custom call's input is whole."""

    input: str


EndEvent = ResponseCompleted | ResponseIncomplete
