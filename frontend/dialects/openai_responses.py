"""OpenAI's Responses API: a body to a Generation. Pure functions.

Owns the fields beside `input` and `tools`; what is sent is the frames'.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from frontend.dialects.base import AskedLogprobs, ChatPrompt, Constraint, Generation
from frontend.dialects.dialect import Dialect
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.openai_constraints import schema_grammar
from frontend.dialects.openai_fields import SHARED_FIELDS, check_least, read_generation
from frontend.dialects.openai_logprobs import MAX_TOP, has_token_ids
from frontend.dialects.openai_responses_frames import AskedResponse, framer, whole_response
from frontend.dialects.openai_responses_items import NOTHING, Recalled, Transcript
from frontend.dialects.openai_responses_objects import ReasoningConfig, ResponseBody, TextConfig
from frontend.dialects.openai_responses_stored import input_items, resolved
from frontend.dialects.openai_responses_tools import OfferedTools
from frontend.dialects.openai_tools import TOOL_FIELDS, ReadVariables, effort_variables, read_variables
from frontend.dialects.values import (
    Bounds,
    as_body,
    as_list,
    as_object,
    as_text,
    read_bool,
    read_integer,
    read_text,
    wrong,
)
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar

MAX_METADATA: Final = 16
MAX_METADATA_KEY: Final = 64
MAX_METADATA_VALUE: Final = 512
_COUNT: Final = Bounds(least=1)
_ELSEWHERE: Final = "this server has no such service: leave it out"
_LOGPROBS: Final = "message.output_text.logprobs"
_SEALED: Final = "reasoning.encrypted_content"
_TEMPLATE_FIELDS: Final = ("enable_thinking", "chat_template_kwargs")

# Of the shared fields, those that this API spells in another way or does not have.
_OTHERWISE: Final[FieldTable] = {
    "max_tokens": NeutralOnly(advice="send max_output_tokens"),
    "max_completion_tokens": NeutralOnly(advice="send max_output_tokens"),
    "response_format": NeutralOnly(advice="send it as text.format"),
    "n": NeutralOnly((1,), "a response is one answer: leave it out"),
}

RESPONSES_FIELDS: Final[FieldTable] = {
    **SHARED_FIELDS,
    **_OTHERWISE,
    "input": Honoured("a string or items"),
    "instructions": Honoured("a system message before all others; not carried over from the previous response"),
    "max_output_tokens": Honoured("left out: --max-tokens, or to the end of the context"),
    "max_tool_calls": Honoured("given back with the response; counts calls of OpenAI's own tools, and there are none"),
    "previous_response_id": Honoured("of a response that is stored"),
    "store": Honoured("true when left out"),
    "metadata": Honoured("up to 16 strings by name, given back with the response"),
    "include": Honoured("logprobs and encrypted reasoning; what belongs to OpenAI's own tools is named"),
    "text": Honoured("format and verbosity"),
    "reasoning": Honoured("effort and summary"),
    "tools": Honoured("function, custom and namespace tools; OpenAI's own are refused or named"),
    "tool_choice": Honoured("auto, none, required, a tool by its name, or allowed_tools"),
    "parallel_tool_calls": Honoured("true when left out"),
    "top_logprobs": Honoured("0 to 20"),
    "prompt_cache_key": Honoured("given back with the response; steers only where OpenAI caches"),
    "safety_identifier": Honoured("given back with the response; nothing is counted by user"),
    "prompt_cache_options": Harmless("steers only where OpenAI caches"),
    "client_metadata": Harmless("the client's own traces"),
    "truncation": Named(("disabled",)),
    "background": NeutralOnly((False,), "a response is made while its request waits: leave it out"),
    "background_options": Named(),
    "conversation": NeutralOnly(advice="send previous_response_id, or the items"),
    "prompt": NeutralOnly(advice="templates live at OpenAI: send input"),
    "context_management": NeutralOnly(([],)),
    "moderation": NeutralOnly(advice=_ELSEWHERE),
    "access_programs": NeutralOnly(advice=_ELSEWHERE),
    "image": Named(({},)),
    "enable_thinking": TOOL_FIELDS["enable_thinking"],
    "chat_template_kwargs": TOOL_FIELDS["chat_template_kwargs"],
}
TEXT_FIELDS: Final[FieldTable] = {
    "format": Honoured("text, json_object or json_schema, strict or not; JSON is written without white space"),
    "verbosity": Named(("medium",)),
}
FORMAT_FIELDS: Final[FieldTable] = {
    "type": Honoured(),
    "schema": Honoured(),
    "name": Harmless("for the client's own use"),
    "description": Named(),
    "strict": Harmless("what is not strict is constrained, too"),
}
REASONING_FIELDS: Final[FieldTable] = {
    "effort": Honoured("given to the template; none switches thinking off where the template can"),
    "summary": Honoured("auto, concise or detailed: the reasoning itself, told as a summary"),
    "generate_summary": Honoured("an older name of summary"),
    "context": Named(("auto",)),
    "mode": Named(("standard",)),
}


def parse_responses(body: object, recalled: Recalled = NOTHING) -> Generation:
    """body: decoded JSON. Raises RequestError with the field as param."""
    fields = as_body(body)
    ignored = dict.fromkeys(check_fields(fields, RESPONSES_FIELDS))
    text = _text(fields.get("text"), ignored)
    reasoning = _reasoning(fields.get("reasoning"), ignored)
    include = _include(fields.get("include"), ignored)
    tools = OfferedTools()
    if fields.get("tools") is not None:
        tools.read(fields["tools"], "tools")
    items = _items(fields, recalled)
    transcript = _transcript(fields, tools, recalled, items)
    is_parallel = read_bool(fields, "parallel_tool_calls", default=True)
    use = tools.use(fields.get("tool_choice"), is_parallel=is_parallel)
    ignored |= transcript.ignored | tools.ignored
    read = _variables(fields, reasoning.effort)
    prompt = ChatPrompt(tuple(transcript.messages), variables=read.variables, asked_by=read.asked_by, param="input")
    generation = read_generation(fields, (prompt,), tuple(ignored))
    top_logprobs = read_integer(fields, "top_logprobs", Bounds(0, MAX_TOP)) or 0
    asked = AskedResponse(
        blank=ResponseBody(
            instructions=read_text(fields, "instructions"),
            max_output_tokens=read_integer(fields, "max_output_tokens", _COUNT),
            max_tool_calls=read_integer(fields, "max_tool_calls", _COUNT),
            parallel_tool_calls=is_parallel,
            previous_response_id=read_text(fields, "previous_response_id"),
            prompt_cache_key=read_text(fields, "prompt_cache_key"),
            reasoning=reasoning,
            safety_identifier=read_text(fields, "safety_identifier"),
            store=read_bool(fields, "store", default=True),
            temperature=generation.sampling.temperature,
            text=text,
            tool_choice=fields.get("tool_choice") or "auto",
            tools=tools.told,
            top_logprobs=top_logprobs,
            top_p=generation.sampling.top_p,
            user=read_text(fields, "user"),
            metadata=_metadata(fields.get("metadata")),
        ),
        origins=tools.origins,
        items=tuple(items),
        is_sealed=_SEALED in include,
    )
    check_least(generation.min_tokens, asked.blank.max_output_tokens)
    logprobs = AskedLogprobs(top_logprobs, has_token_ids(fields))
    return replace(
        generation,
        max_tokens=asked.blank.max_output_tokens,
        logprobs=logprobs if top_logprobs or _LOGPROBS in include else None,
        constraint=_constraint(text, generation),
        tools=use,
        kept=asked,
    )


def responses_dialect(recalled: Recalled) -> Dialect:
    """The dialect of one request, which may go on from what was stored."""
    return Dialect(
        id_prefix="resp_",
        parse=partial(parse_responses, recalled=recalled),
        framer=framer,
        whole=whole_response,
        has_done=False,
    )


def _items(fields: Mapping[str, object], recalled: Recalled) -> list[dict[str, Any]]:
    value = fields.get("input")
    if value is None and not recalled.history:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`input` is missing: send a string or an array of items", "input")
    items = resolved([] if value is None else input_items(value), recalled.references)
    if not items and not recalled.history:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`input` is empty: send at least one item", "input")
    return items


def _transcript(
    fields: Mapping[str, object], tools: OfferedTools, recalled: Recalled, items: list[dict[str, Any]]
) -> Transcript:
    transcript = Transcript(tools)
    instructions = read_text(fields, "instructions")
    if instructions:
        transcript.instruct(instructions)
    for index, item in enumerate(recalled.history):
        transcript.add(item, f"previous_response_id[{index}]")
    transcript.add_all(items, "input")
    return transcript


def _text(value: object, ignored: dict[str, None]) -> TextConfig:
    fields = {} if value is None else as_object(value, "text")
    ignored |= dict.fromkeys(check_fields(fields, TEXT_FIELDS, "text."))
    given = fields.get("format")
    form = {"type": "text"} if given is None else as_object(given, "text.format")
    ignored |= dict.fromkeys(check_fields(form, FORMAT_FIELDS, "text.format."))
    return TextConfig(format=form, verbosity=read_text({"text.verbosity": fields.get("verbosity")}, "text.verbosity"))


def _constraint(text: TextConfig, generation: Generation) -> Constraint | None:
    """The format's, or that of one of the fields that vLLM and llama.cpp have."""
    match text.format.get("type"):
        case "text":
            return generation.constraint
        case "json_object":
            grammar = Grammar(kind="json_object", text="")
        case "json_schema":
            grammar = schema_grammar(text.format.get("schema"), "text.format.schema")
        case other:
            raise wrong("text.format.type", other, '"text", "json_object" or "json_schema"')
    if generation.constraint is not None:
        other = generation.constraint.field
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`text.format` and `{other}` exclude each other: send one constraint", other
        )
    return Constraint("text.format", grammar)


def _reasoning(value: object, ignored: dict[str, None]) -> ReasoningConfig:
    fields = {} if value is None else as_object(value, "reasoning")
    ignored |= dict.fromkeys(check_fields(fields, REASONING_FIELDS, "reasoning."))
    summary = fields.get("summary") or fields.get("generate_summary")
    if summary not in (None, "auto", "concise", "detailed"):
        raise wrong("reasoning.summary", summary, "auto, concise or detailed")
    effort = read_text({"reasoning.effort": fields.get("effort")}, "reasoning.effort")
    return ReasoningConfig(effort=effort, summary=cast("str | None", summary))


def _variables(fields: Mapping[str, object], effort: str | None) -> ReadVariables:
    """For the template; of two fields that set the same, the more particular wins."""
    asked = effort_variables(effort, "reasoning.effort")
    more = read_variables({name: fields.get(name) for name in _TEMPLATE_FIELDS})
    return ReadVariables({**asked.variables, **more.variables}, {**asked.asked_by, **more.asked_by})


def _include(value: object, ignored: dict[str, None]) -> set[str]:
    if value is None:
        return set()
    names = {as_text(item, f"include[{index}]") for index, item in enumerate(as_list(value, "include"))}
    ignored |= dict.fromkeys(f"include[]={name}" for name in sorted(names - {_LOGPROBS, _SEALED}))
    return names


def _metadata(value: object) -> dict[str, str]:
    """OpenAI's bounds."""
    if value is None:
        return {}
    metadata = as_object(value, "metadata")
    is_sound = len(metadata) <= MAX_METADATA and all(
        isinstance(text, str) and len(text) <= MAX_METADATA_VALUE and len(key) <= MAX_METADATA_KEY
        for key, text in metadata.items()
    )
    if not is_sound:
        expected = (
            f"at most {MAX_METADATA} strings of at most {MAX_METADATA_VALUE} characters, "
            f"by names of at most {MAX_METADATA_KEY}"
        )
        raise wrong("metadata", metadata, expected)
    return cast("dict[str, str]", metadata)
