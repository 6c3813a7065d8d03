"""Anthropic's messages: the verdict on each field, body to Generation, and the dialect itself.

The lists hold Anthropic's API, its betas, and the sampling fields that Convoy's other dialects have.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from frontend.dialects.anthropic_frames import MessageFramer, message_reply
from frontend.dialects.anthropic_messages import read_prompt
from frontend.dialects.anthropic_tools import read_tools
from frontend.dialects.base import Constraint, Generation
from frontend.dialects.dialect import Dialect
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.openai_constraints import CONSTRAINT_FIELDS, ReadConstraint, read_constraint
from frontend.dialects.openai_fields import (
    MAX_STOP_IDS,
    MAX_TIMEOUT_S,
    PRIORITY,
    SHARED_FIELDS,
    check_least,
    read_cache_salt,
    read_stops,
)
from frontend.dialects.openai_sampling import read_sampling, read_token_ids
from frontend.dialects.values import (
    Above,
    Bounds,
    as_body,
    as_object,
    read_bool,
    read_integer,
    read_number,
    read_text,
    wrong,
)
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar

# Those that Anthropic does not have, with the same meaning as in the other dialects.
_SHARED_NAMES: Final = (
    *(name for name in CONSTRAINT_FIELDS if name != "response_format"),
    "min_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "repetition_context_size",
    "presence_penalty",
    "presence_context_size",
    "frequency_penalty",
    "frequency_context_size",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "seed",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "ignore_eos",
    "min_tokens",
    "priority",
    "cache_salt",
    "timeout",
)
_NOT_HERE: Final = "only Anthropic's own servers do this: leave it out"

ANTHROPIC_FIELDS: Final[FieldTable] = {
    "model": Honoured("null, or one of the served names"),
    "messages": Honoured("a last message of the assistant is continued"),
    "max_tokens": Honoured("left out: --max-tokens, or to the end of the context; 0 gets 400"),
    "system": Honoured("a string or text blocks, which are joined by line breaks"),
    "stop_sequences": Honoured("up to 16; the one completed first ends the text"),
    "stream": Honoured(),
    "temperature": Honoured("0 is greedy; left out: --temp, the model's own, or 0"),
    "top_p": Honoured("above 0; 1 is off"),
    "top_k": Honoured("0 is off"),
    "tools": Honoured("with an input_schema"),
    "tool_choice": Honoured("auto, any, tool and none"),
    "thinking": Honoured("what the template calls enable_thinking; left out: the template's own"),
    "output_config": Honoured("effort and format"),
    "output_format": Honoured("output_config.format, as it was once called"),
    "metadata": Harmless("nothing is counted by user"),
    "cache_control": Harmless("every prompt is kept as long as there is room"),
    "service_tier": Named(("auto", "standard_only")),
    "inference_geo": Named(),
    "speed": Named(("standard",)),
    "diagnostics": Named(),
    "context_management": Named(({"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})),
    "fallbacks": Named(([],)),
    "fallback_credit_token": Named(),
    "billing_policy": Named(),
    "betas": Named(([],)),
    "anthropic_beta": Named(([],)),
    "anthropic_version": Harmless("there is one"),
    "user_profile_id": Harmless("nothing is counted by user"),
    "container": NeutralOnly(advice=_NOT_HERE),
    "mcp_servers": NeutralOnly(([],), _NOT_HERE),
    "compaction": NeutralOnly(advice=_NOT_HERE),
    "thread": NeutralOnly(advice=_NOT_HERE),
    "adapters": NeutralOnly(advice="send the adapter's name as the model"),
    "n": NeutralOnly((1,)),
    "stop": NeutralOnly(advice="send it as stop_sequences"),
    "response_format": NeutralOnly(({"type": "text"},), "send it as output_config.format"),
    **{name: SHARED_FIELDS[name] for name in _SHARED_NAMES},
}
OUTPUT_CONFIG_FIELDS: Final[FieldTable] = {
    "effort": Honoured("the template's reasoning_effort; xhigh and max are high"),
    "format": Honoured("json_schema"),
    "task_budget": Named(),
}
THINKING_FIELDS: Final[FieldTable] = {
    "type": Honoured("enabled, adaptive and between_tools turn it on, disabled off"),
    "budget_tokens": Named(),
    "display": Honoured("omitted: the text goes into the signature"),
}
FORMAT_FIELDS: Final[FieldTable] = {"type": Honoured(), "schema": Honoured(), "name": Harmless("for the client's use")}
_COUNT: Final = Bounds(least=1)
_INT64: Final = Bounds(least=-(2**63), most=2**63 - 1)
_IS_THINKING: Final[Mapping[str, bool]] = {
    "enabled": True,
    "adaptive": True,
    "between_tools": True,
    "disabled": False,
}
# Reasoning is shown as it is or not at all; a word that is new is no reason to refuse an agent's request.
_DISPLAYS: Final = (None, "summarized", "updates", "omitted")
_EFFORTS: Final[Mapping[str, str]] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


def parse_message(body: object) -> Generation:
    """body: decoded JSON. Raises RequestError with the field as param."""
    fields = as_body(body)
    ignored = check_fields(fields, ANTHROPIC_FIELDS)
    read = read_prompt(fields)
    tools, in_tools = read_tools(fields, read.tool_changes)
    thinking, in_thinking = _thinking(fields)
    output, in_output = _output_config(fields)
    effort = _effort(output)
    constrained = _constraint(fields, output, read_constraint(fields))
    asked_by = {"thinking": tuple(thinking), "output_config.effort": tuple(effort)}
    asked_by = {name: variables for name, variables in asked_by.items() if variables}
    min_tokens = read_integer(fields, "min_tokens", Bounds(0, 2**53)) or 0
    max_tokens = read_integer(fields, "max_tokens", _COUNT)
    check_least(min_tokens, max_tokens)
    return Generation(
        model=read_text(fields, "model"),
        prompts=(replace(read.prompt, variables={**thinking, **effort}, asked_by=asked_by),),
        sampling=read_sampling(fields),
        max_tokens=max_tokens,
        seed=read_integer(fields, "seed", _INT64),
        stops=read_stops(fields, "stop_sequences"),
        stop_ids=read_token_ids(fields, "stop_token_ids", MAX_STOP_IDS),
        include_stop=read_bool(fields, "include_stop_str_in_output", default=False),
        ignore_eos=read_bool(fields, "ignore_eos", default=False),
        min_tokens=min_tokens,
        skip_special_tokens=read_bool(fields, "skip_special_tokens", default=True),
        constraint=constrained.constraint,
        tools=tools,
        hides_reasoning=_hides_reasoning(fields),
        cache_salt=read_cache_salt(fields),
        priority=read_integer(fields, "priority", PRIORITY) or 0,
        timeout_s=read_number(fields, "timeout", Above(0, MAX_TIMEOUT_S)),
        is_stream=read_bool(fields, "stream", default=False),
        ignored=tuple(dict.fromkeys(ignored + read.ignored + in_tools + in_thinking + in_output + constrained.ignored)),
    )


ANTHROPIC: Final = Dialect(
    id_prefix="msg_",
    parse=parse_message,
    framer=MessageFramer,
    whole=message_reply,
    has_done=False,
)


def _thinking(body: Mapping[str, object]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Variables for the template, under the two names that templates have for it."""
    value = body.get("thinking")
    if value is None:
        return {}, ()
    fields = as_object(value, "thinking")
    ignored = check_fields(fields, THINKING_FIELDS, "thinking.")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _IS_THINKING:
        raise wrong("thinking.type", kind, "one of " + ", ".join(_IS_THINKING))
    display = read_text({"thinking.display": fields.get("display")}, "thinking.display")
    if display not in _DISPLAYS:
        ignored += ("thinking.display",)
    return {"enable_thinking": _IS_THINKING[kind], "thinking": _IS_THINKING[kind]}, ignored


def _hides_reasoning(body: Mapping[str, object]) -> bool:
    thinking = body.get("thinking")
    return thinking is not None and as_object(thinking, "thinking").get("display") == "omitted"


def _output_config(body: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    value = body.get("output_config")
    fields = {} if value is None else as_object(value, "output_config")
    return fields, check_fields(fields, OUTPUT_CONFIG_FIELDS, "output_config.")


def _effort(output: Mapping[str, object]) -> dict[str, Any]:
    effort = output.get("effort")
    if effort is None:
        return {}
    if not isinstance(effort, str) or effort not in _EFFORTS:
        raise wrong("output_config.effort", effort, "one of " + ", ".join(_EFFORTS))
    return {"reasoning_effort": _EFFORTS[effort]}


def _constraint(body: Mapping[str, object], output: Mapping[str, object], other: ReadConstraint) -> ReadConstraint:
    """The schema of the reply's text, from either of its places; other: that of a field which is not Anthropic's."""
    places = {"output_config.format": output.get("format"), "output_format": body.get("output_format")}
    given = {name: value for name, value in places.items() if value is not None}
    if not given:
        return other
    names = [*given, *([] if other.constraint is None else [other.constraint.field])]
    if len(names) > 1:
        told = " and ".join(f"`{name}`" for name in names)
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{told} exclude each other: send one of them", names[-1])
    name, value = next(iter(given.items()))
    fields = as_object(value, name)
    ignored = check_fields(fields, FORMAT_FIELDS, f"{name}.")
    if fields.get("type") != "json_schema":
        raise wrong(f"{name}.type", fields.get("type"), '"json_schema"')
    schema = as_object(fields.get("schema"), f"{name}.schema")
    grammar = Grammar(kind="json_schema", text=msgspec.json.encode(schema).decode())
    return ReadConstraint(Constraint(name, grammar), other.ignored + ignored)
