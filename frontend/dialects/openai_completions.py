"""OpenAI's (legacy) completions: body to Generation, event to frames, choices to a whole reply. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    FinishWord,
    Generation,
    Prompt,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    TextPrompt,
    TokenEntry,
    TokensPrompt,
    ToolCallArguments,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.dialect import Dialect, PlainFramer
from frontend.dialects.fields import FieldTable, Honoured, NeutralOnly, check_fields
from frontend.dialects.openai_fields import SHARED_FIELDS, read_generation
from frontend.dialects.openai_logprobs import CompletionLogprobs, completion_logprobs, read_completion_logprobs
from frontend.dialects.openai_sampling import token_ids
from frontend.dialects.openai_usage import UsageBody, head, usage_body
from frontend.dialects.values import Bounds, as_body, as_list, as_text, is_integer, read_bool, read_integer, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Usage

MAX_PROMPTS: Final = 1_024
_PROMPT_EXPECTED: Final = "a string, an array of strings, an array of token ids, or an array of such arrays"

COMPLETION_FIELDS: Final[FieldTable] = {
    "prompt": Honoured("one choice for each prompt"),
    **SHARED_FIELDS,
    "logprobs": Honoured("0 to 20 alternatives a token, or true with top_logprobs as in mlx_lm.server"),
    "top_logprobs": Honoured("with logprobs true"),
    "best_of": Honoured("rows run for each prompt, at least n; not streamed where it is more than n"),
    "echo": Honoured("with logprobs the prompt's tokens have theirs; with max_tokens 0 nothing else comes"),
    "suffix": NeutralOnly(("",)),
    "add_special_tokens": NeutralOnly((True,), "send token ids instead"),
    "prompt_embeds": NeutralOnly(),
}


class CompletionChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice in a frame."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishWord | None = None


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One frame. usage: absent unless asked for, then null in all frames but the last."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[CompletionChunkChoice, ...]
    usage: UsageBody | UnsetType | None = UNSET


class CompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that is not streamed."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[CompletionChunkChoice, ...]
    usage: UsageBody


def parse_completion(body: object) -> Generation:
    """body: decoded JSON. Raises RequestError with the field as param."""
    fields = as_body(body)
    ignored = check_fields(fields, COMPLETION_FIELDS)
    has_echo = read_bool(fields, "echo", default=False)
    generation = read_generation(fields, _prompts(fields.get("prompt")), ignored, least_tokens=0 if has_echo else 1)
    return replace(
        generation,
        has_echo=has_echo,
        logprobs=read_completion_logprobs(fields),
        best_of=_best_of(fields, generation),
    )


def completion_frames(facts: ReplyFacts, event: ReplyEvent, include_usage: bool) -> list[msgspec.Struct]:
    """The frames of one event, in order."""
    match event:
        case ChoiceStarted():
            return []
        case ChoiceReasoning() | ToolCallStarted() | ToolCallArguments() | ToolCallFinished() | ToolCallBroken():
            # A completion's text is not parsed: it comes as the model writes it.
            return []
        case ChoiceText(choice=index, text=text, entries=entries):
            choice = CompletionChunkChoice(text=text, index=index, logprobs=_logprobs(entries, facts))
        case ChoiceFinished(choice=index, reason=reason):
            choice = CompletionChunkChoice(text="", index=index, finish_reason=reason)
        case ReplyFinished(usage=usage):
            return [CompletionChunk(**head(facts), choices=(), usage=usage_body(usage))] if include_usage else []
        case _ as never:
            assert_never(never)
    return [CompletionChunk(**head(facts), choices=(choice,), usage=None if include_usage else UNSET)]


def completion_reply(facts: ReplyFacts, choices: list[WholeChoice], usage: Usage) -> CompletionReply:
    """The whole reply."""
    return CompletionReply(
        **head(facts),
        choices=tuple(
            CompletionChunkChoice(
                text=whole.text,
                index=whole.choice,
                logprobs=_logprobs(whole.entries, facts),
                finish_reason=whole.reason,
            )
            for whole in choices
        ),
        usage=usage_body(usage),
    )


COMPLETIONS: Final = Dialect(
    id_prefix="cmpl-",
    parse=parse_completion,
    framer=lambda facts, generation: PlainFramer(completion_frames, facts, generation.include_usage),
    whole=lambda facts, generation, choices, usage: completion_reply(facts, choices, usage),
)


def _logprobs(entries: Sequence[TokenEntry], facts: ReplyFacts) -> CompletionLogprobs | None:
    return None if facts.logprobs is None else completion_logprobs(entries, facts.logprobs)


def _best_of(fields: Mapping[str, object], generation: Generation) -> int | None:
    best_of = read_integer(fields, "best_of", Bounds(least=1))
    if best_of is None:
        return None
    if best_of < generation.choices:
        raise wrong("best_of", best_of, f"at least `n`, which is {generation.choices}")
    if best_of > generation.choices and generation.is_stream:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`best_of` {best_of} with `n` {generation.choices} cannot be streamed: the best is known at the end",
            "best_of",
        )
    return best_of


def _prompts(value: object) -> tuple[Prompt, ...]:
    if value is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"`prompt` is missing: it must be {_PROMPT_EXPECTED}", "prompt")
    if isinstance(value, str):
        return (TextPrompt(value),)
    items = as_list(value, "prompt", _PROMPT_EXPECTED)
    if not items:
        raise wrong("prompt", items, _PROMPT_EXPECTED + ", and not empty")
    if is_integer(items[0]):
        return (TokensPrompt(token_ids(items, "prompt")),)
    if len(items) > MAX_PROMPTS:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`prompt` has {len(items)} prompts, at most {MAX_PROMPTS} are taken", "prompt"
        )
    if isinstance(items[0], str):
        return tuple(TextPrompt(as_text(item, f"prompt[{index}]")) for index, item in enumerate(items))
    if isinstance(items[0], list):
        return tuple(_tokens_prompt(item, f"prompt[{index}]") for index, item in enumerate(items))
    raise wrong("prompt[0]", items[0], "a string, a token id or an array of token ids")


def _tokens_prompt(value: object, name: str) -> TokensPrompt:
    ids = as_list(value, name)
    if not ids:
        raise wrong(name, ids, "an array of at least one token id")
    return TokensPrompt(token_ids(ids, name))
