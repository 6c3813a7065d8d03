"""What both OpenAI dialects share: the verdict on each common field, and the settings of a Generation.

The lists hold OpenAI's API, vLLM's extensions and mlx_lm.server's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frontend.dialects.base import Generation, Prompt
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.openai_constraints import CONSTRAINT_FIELDS, read_constraint
from frontend.dialects.openai_sampling import read_sampling, read_token_ids
from frontend.dialects.values import (
    Above,
    Bounds,
    as_list,
    as_object,
    as_text,
    read_bool,
    read_integer,
    read_number,
    read_text,
    wrong,
)
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import MAX_DRAFT_TOKENS

MAX_STOPS: Final = 16
# Each token of a text that is all but one is held against all of it.
MAX_STOP_CHARACTERS: Final = 1_000
MAX_STOP_IDS: Final = 1_024
MAX_TIMEOUT_S: Final = 1_000_000
MAX_SALT_CHARACTERS: Final = 1_024
_COUNT: Final = Bounds(least=1)
_DRAFT_TOKENS: Final = Bounds(least=0, most=MAX_DRAFT_TOKENS)
PRIORITY: Final = Bounds(least=-(2**53), most=2**53)
_INT64: Final = Bounds(least=-(2**63), most=2**63 - 1)

SHARED_FIELDS: Final[FieldTable] = {
    "model": Honoured("null, or one of the served names"),
    "stream": Honoured(),
    "stream_options": Honoured("only with stream"),
    "max_tokens": Honoured("left out: --max-tokens, or to the end of the context"),
    "max_completion_tokens": Honoured("wins over max_tokens, as in vLLM and mlx_lm.server"),
    "temperature": Honoured("0 is greedy; left out: --temp, the model's own, or 0"),
    "seed": Honoured("any 64-bit integer; only its lower 63 bits count"),
    "stop": Honoured("a string or up to 16; the one completed first ends the text"),
    "stop_token_ids": Honoured(),
    "include_stop_str_in_output": Honoured("also the text of a token that ends the reply, as in vLLM"),
    "ignore_eos": Honoured(),
    "min_tokens": Honoured("so long no end counts, a stop string neither"),
    "skip_special_tokens": Honoured(),
    "timeout": Honoured("Convoy's own: seconds for the whole request"),
    "user": Honoured("must be a string; nothing is counted by user"),
    "n": Honoured("up to --max-rows; choice 0 has the request's seed, each further one its own"),
    "top_p": Honoured("above 0; 1 is off"),
    "top_k": Honoured("0 and -1 are off"),
    "min_p": Honoured("0 is off"),
    "typical_p": NeutralOnly((1,)),
    "xtc_probability": Honoured("ends and the line break are spared, as in mlx_lm.server"),
    "xtc_threshold": Honoured("0 to 0.5; 0.1 when left out, as in mlx_lm.server"),
    "repetition_penalty": Honoured("a factor; 1 and 0 are off"),
    "repetition_context_size": Honoured("20 last tokens when left out, the prompt's among them"),
    "presence_penalty": Honoured("over the last presence_context_size tokens"),
    "presence_context_size": Honoured("20 last tokens when left out, the prompt's among them"),
    "frequency_penalty": Honoured("over the last frequency_context_size tokens"),
    "frequency_context_size": Honoured("20 last tokens when left out, the prompt's among them"),
    "length_penalty": NeutralOnly((1,)),
    "logit_bias": Honoured("a map of token ids to -100 to 100"),
    "logits_processors": NeutralOnly(([],)),
    "allowed_token_ids": Honoured("no other token comes up; empty: all may"),
    "bad_words": Honoured("tokenised with and without a space before them, as in vLLM"),
    "use_beam_search": NeutralOnly((False,)),
    "early_stopping": NeutralOnly((False,)),
    "prompt_logprobs": NeutralOnly((False,), "send echo with logprobs to /v1/completions"),
    **CONSTRAINT_FIELDS,
    "adapters": Honoured("the name of a mounted adapter, never a path"),
    "draft_model": Honoured("null, default_model, or the one that is served beside the model"),
    "num_draft_tokens": Honoured("0 to 32; changes the pace only"),
    "truncate_prompt_tokens": NeutralOnly(advice="shorten the prompt"),
    "spaces_between_special_tokens": NeutralOnly((True,)),
    "return_tokens_as_token_ids": Honoured("of log-probabilities: `token_id:5` for the token's text"),
    "return_token_ids": NeutralOnly((False,)),
    "priority": Honoured("the lower, the earlier, as in vLLM; 0 when left out"),
    "kv_transfer_params": NeutralOnly(({},)),
    "vllm_xargs": NeutralOnly(({},)),
    "cache_salt": Honoured("what was computed for a prompt is shared between requests of one salt alone"),
    "prompt_cache_key": Harmless("steers only where OpenAI caches"),
    "prompt_cache_retention": Harmless("steers only how long OpenAI caches"),
    "safety_identifier": Harmless("nothing is counted by user"),
    "metadata": Harmless("belongs to stored completions, and none is stored"),
    "store": Named((False,)),
    "service_tier": Named(("auto", "default")),
    "request_id": Named(),
}

STREAM_OPTIONS_FIELDS: Final[FieldTable] = {
    "include_usage": Honoured(),
    "include_obfuscation": Named((False,)),
    "continuous_usage_stats": NeutralOnly((False,)),
}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a reply is delivered. ignored: names of the options that have no effect."""

    is_stream: bool
    include_usage: bool = False
    ignored: tuple[str, ...] = ()


def read_generation(
    body: Mapping[str, object], prompts: tuple[Prompt, ...], ignored: tuple[str, ...], least_tokens: int = 1
) -> Generation:
    """All honoured fields that both dialects share. least_tokens: of max_tokens. Raises RequestError."""
    read_text(body, "user")
    stream = _stream_options(body)
    constrained = read_constraint(body)
    bounds = Bounds(least_tokens)
    max_tokens = read_integer(body, "max_tokens", bounds)
    max_completion_tokens = read_integer(body, "max_completion_tokens", bounds)
    limit = max_tokens if max_completion_tokens is None else max_completion_tokens
    min_tokens = read_integer(body, "min_tokens", Bounds(0, 2**53)) or 0
    check_least(min_tokens, limit)
    return Generation(
        model=read_text(body, "model"),
        prompts=prompts,
        sampling=read_sampling(body),
        choices=read_integer(body, "n", _COUNT) or 1,
        max_tokens=limit,
        seed=read_integer(body, "seed", _INT64),
        stops=read_stops(body, "stop"),
        stop_ids=read_token_ids(body, "stop_token_ids", MAX_STOP_IDS),
        include_stop=read_bool(body, "include_stop_str_in_output", default=False),
        ignore_eos=read_bool(body, "ignore_eos", default=False),
        min_tokens=min_tokens,
        skip_special_tokens=read_bool(body, "skip_special_tokens", default=True),
        constraint=constrained.constraint,
        adapter=_adapter(body),
        cache_salt=read_cache_salt(body),
        draft_model=read_text(body, "draft_model"),
        draft_tokens=read_integer(body, "num_draft_tokens", _DRAFT_TOKENS),
        priority=read_integer(body, "priority", PRIORITY) or 0,
        timeout_s=read_number(body, "timeout", Above(0, MAX_TIMEOUT_S)),
        is_stream=stream.is_stream,
        include_usage=stream.include_usage,
        ignored=tuple(dict.fromkeys(ignored + stream.ignored + constrained.ignored)),
    )


def check_least(min_tokens: int, limit: int | None) -> None:
    """Raises RequestError for a min_tokens over the tokens that are asked for at most."""
    if limit is not None and min_tokens > limit:
        raise wrong("min_tokens", min_tokens, f"at most the {limit} tokens that are asked for")


def _stream_options(body: Mapping[str, object]) -> StreamOptions:
    is_stream = read_bool(body, "stream", default=False)
    value = body.get("stream_options")
    if value is None:
        return StreamOptions(is_stream)
    options = as_object(value, "stream_options")
    if not is_stream:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "`stream_options` is only allowed when `stream` is true", "stream_options"
        )
    ignored = check_fields(options, STREAM_OPTIONS_FIELDS, prefix="stream_options.")
    include_usage = options.get("include_usage")
    if include_usage is not None and not isinstance(include_usage, bool):
        raise wrong("stream_options.include_usage", include_usage, "true or false")
    return StreamOptions(is_stream, include_usage is True, ignored)


def read_stops(body: Mapping[str, object], name: str) -> tuple[str, ...]:
    """A string or several, each once. Raises RequestError."""
    value = body.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        stops = [value]
    else:
        items = as_list(value, name, "a string or an array of strings")
        stops = [as_text(item, f"{name}[{index}]") for index, item in enumerate(items)]
    if len(stops) > MAX_STOPS:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`{name}` has {len(stops)} strings, at most {MAX_STOPS} are taken", name
        )
    if "" in stops:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"`{name}` must not hold an empty string", name)
    longest = max(map(len, stops), default=0)
    if longest > MAX_STOP_CHARACTERS:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`{name}` has a string of {longest} characters, at most {MAX_STOP_CHARACTERS} are taken",
            name,
        )
    return tuple(dict.fromkeys(stops))


def read_cache_salt(body: Mapping[str, object]) -> str | None:
    """With whom a prompt shares what is computed of it. Raises RequestError."""
    salt = read_text(body, "cache_salt")
    if salt is not None and not 0 < len(salt) <= MAX_SALT_CHARACTERS:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`cache_salt` has {len(salt)} characters, 1 to {MAX_SALT_CHARACTERS} are taken; null shares with all",
            "cache_salt",
        )
    return salt


def _adapter(body: Mapping[str, object]) -> str | None:
    """mlx_lm.server takes a path here; no client may choose what is read from this machine's disk."""
    name = read_text(body, "adapters")
    if name is not None and (not name or "/" in name):
        raise wrong("adapters", name, "the name of a mounted adapter")
    return name
