"""OpenAI's chat completions: body to Generation, event to frames, choices to a whole reply. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from frontend.dialects.base import (
    ChatPrompt,
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    FinishWord,
    Generation,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    TokenEntry,
    ToolCallArguments,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
    WholeCall,
    WholeChoice,
)
from frontend.dialects.dialect import Dialect, PlainFramer
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.openai_fields import SHARED_FIELDS, read_generation
from frontend.dialects.openai_logprobs import ChatLogprobs, chat_logprobs, read_chat_logprobs
from frontend.dialects.openai_messages import read_messages
from frontend.dialects.openai_tools import TOOL_FIELDS, ReadVariables, read_role_mapping, read_tools, read_variables
from frontend.dialects.openai_usage import UsageBody, head, usage_body
from frontend.dialects.values import as_body, read_bool
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Usage

CHAT_FIELDS: Final[FieldTable] = {
    "messages": Honoured(),
    **SHARED_FIELDS,
    "add_generation_prompt": Honoured("false: no new turn is opened"),
    "continue_final_message": Honoured("true: the reply goes on in the last message"),
    "logprobs": Honoured("after penalties and masks, before temperature; the ending token has none"),
    "top_logprobs": Honoured("0 to 20, with logprobs; 0 and -1 are none"),
    "best_of": NeutralOnly((1,), "a completions field: leave it out"),
    "echo": NeutralOnly((False,), "a completions field: leave it out"),
    **TOOL_FIELDS,
    "modalities": NeutralOnly((["text"],), "this server writes text only: leave it out"),
    "audio": NeutralOnly(advice="this server writes text only: leave it out"),
    "prediction": NeutralOnly(),
    "verbosity": NeutralOnly(("medium",)),
    "web_search_options": NeutralOnly(advice="this server searches nothing: leave it out"),
    "role_mapping": Honoured("mlx_lm.server's: the words before each role's messages, where the model has no template"),
    "chat_template": NeutralOnly(advice="the model's own chat template is used: leave it out"),
    "documents": NeutralOnly(([],)),
    "moderation": NeutralOnly(advice="this server has no such service: leave it out"),
    "prompt_cache_options": Harmless("steers only where OpenAI caches"),
    "add_special_tokens": NeutralOnly((False,), "the chat template writes the special tokens: leave it out"),
    "mm_processor_kwargs": Named(({},)),
    "media_io_kwargs": Named(({},)),
}


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame adds to a call's function."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame adds to a call; its first one has the id, the type and the name."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class ChunkDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame adds to the message. Reasoning has vLLM's and mlx_lm.server's name: clients read one of them."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice in a frame."""

    index: int
    delta: ChunkDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishWord | None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One frame. usage: absent unless asked for, then null in all frames but the last."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[ChunkChoice, ...]
    usage: UsageBody | UnsetType | None = UNSET


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """arguments: a JSON object, as text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a whole reply."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of one choice. content: null for calls without text."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a whole reply."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishWord


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[ChatChoice, ...]
    usage: UsageBody


def parse_chat(body: object) -> Generation:
    """body: decoded JSON. Raises RequestError with the field as param."""
    fields = as_body(body)
    ignored = check_fields(fields, CHAT_FIELDS)
    conversation = read_messages(fields.get("messages"))
    tools = read_tools(fields)
    speakers = read_role_mapping(fields.get("role_mapping"))
    prompt = _prompt(fields, conversation.messages, speakers)
    ignored += conversation.ignored + tools.ignored + speakers.ignored
    generation = read_generation(fields, (prompt,), ignored)
    return replace(
        generation,
        logprobs=read_chat_logprobs(fields),
        tools=tools.use,
        hides_reasoning=not read_bool(fields, "include_reasoning", default=True),
    )


def chat_frames(facts: ReplyFacts, event: ReplyEvent, include_usage: bool) -> list[msgspec.Struct]:
    """The frames of one event, in order."""
    match event:
        case ChoiceStarted(choice=index):
            choice = ChunkChoice(index=index, delta=ChunkDelta(role="assistant", content=""))
        case ChoiceText(choice=index, text=text, entries=entries):
            choice = ChunkChoice(index=index, delta=ChunkDelta(content=text), logprobs=_logprobs(entries, facts))
        case ChoiceReasoning(choice=index, text=text, entries=entries):
            delta = ChunkDelta(reasoning_content=text, reasoning=text)
            choice = ChunkChoice(index=index, delta=delta, logprobs=_logprobs(entries, facts))
        case ToolCallStarted(choice=index):
            choice = ChunkChoice(index=index, delta=_call_started(event))
        case ToolCallArguments(choice=index, call=call, text=text, entries=entries):
            delta = ChunkDelta(tool_calls=(ToolCallDelta(index=call, function=FunctionDelta(arguments=text)),))
            choice = ChunkChoice(index=index, delta=delta, logprobs=_logprobs(entries, facts))
        case ToolCallFinished() | ToolCallBroken():
            return []
        case ChoiceFinished(choice=index, reason=reason):
            choice = ChunkChoice(index=index, delta=ChunkDelta(), finish_reason=reason)
        case ReplyFinished(usage=usage, reasoning_tokens=reasoning):
            return [ChatChunk(**head(facts), choices=(), usage=usage_body(usage, reasoning))] if include_usage else []
        case _ as never:
            assert_never(never)
    return [ChatChunk(**head(facts), choices=(choice,), usage=None if include_usage else UNSET)]


def chat_reply(facts: ReplyFacts, choices: list[WholeChoice], usage: Usage) -> ChatReply:
    """The whole reply."""
    return ChatReply(
        **head(facts),
        choices=tuple(
            ChatChoice(
                index=whole.choice,
                message=_message(whole),
                logprobs=_logprobs(whole.entries, facts),
                finish_reason=whole.reason,
            )
            for whole in choices
        ),
        usage=usage_body(usage, sum(whole.reasoning_tokens for whole in choices)),
    )


CHAT: Final = Dialect(
    id_prefix="chatcmpl-",
    parse=parse_chat,
    framer=lambda facts, generation: PlainFramer(
        _frames_without_reasoning if generation.hides_reasoning else chat_frames, facts, generation.include_usage
    ),
    whole=lambda facts, generation, choices, usage: chat_reply(
        facts, _without_reasoning(choices) if generation.hides_reasoning else choices, usage
    ),
)


def _frames_without_reasoning(facts: ReplyFacts, event: ReplyEvent, include_usage: bool) -> list[msgspec.Struct]:
    return [] if isinstance(event, ChoiceReasoning) else chat_frames(facts, event, include_usage)


def _without_reasoning(choices: list[WholeChoice]) -> list[WholeChoice]:
    return [replace(whole, reasoning_parts=[]) for whole in choices]


def _message(whole: WholeChoice) -> ChatMessage:
    reasoning = whole.reasoning or UNSET
    return ChatMessage(
        content=None if whole.calls and not whole.text else whole.text,
        reasoning_content=reasoning,
        reasoning=reasoning,
        tool_calls=tuple(_tool_call(call) for call in whole.calls) or UNSET,
    )


def _tool_call(call: WholeCall) -> ToolCall:
    return ToolCall(id=call.id, function=Function(name=call.name, arguments=call.arguments))


def _call_started(event: ToolCallStarted) -> ChunkDelta:
    function = FunctionDelta(name=event.name, arguments="")
    return ChunkDelta(tool_calls=(ToolCallDelta(index=event.call, id=event.id, type="function", function=function),))


def _logprobs(entries: Sequence[TokenEntry], facts: ReplyFacts) -> ChatLogprobs | None:
    return None if facts.logprobs is None else chat_logprobs(entries, facts.logprobs)


def _prompt(
    fields: Mapping[str, object], messages: tuple[dict[str, object], ...], speakers: ReadVariables
) -> ChatPrompt:
    """A trailing assistant message is history, as OpenAI, vLLM and mlx_lm.server have it, unless it is continued."""
    is_continued = read_bool(fields, "continue_final_message", default=False)
    is_prompted = read_bool(fields, "add_generation_prompt", default=not is_continued)
    if is_continued and is_prompted:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "`continue_final_message` and `add_generation_prompt` cannot both be true",
            "continue_final_message",
        )
    if is_continued and messages[-1]["role"] != "assistant":
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "`continue_final_message` needs a last message of the role assistant",
            "continue_final_message",
        )
    read = read_variables(fields)
    return ChatPrompt(
        messages,
        add_generation_prompt=is_prompted,
        continue_final_message=is_continued,
        variables={**read.variables, **speakers.variables},
        asked_by={**read.asked_by, **speakers.asked_by},
    )
