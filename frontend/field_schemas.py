"""JSON schemas of request fields, by name: what the tables of the dialects do not say. Owns types, no verdicts."""

from collections.abc import Mapping
from typing import Any, Final

from frontend.dialects.fields import FieldRule, FieldTable, Harmless, Honoured, Named, NeutralOnly
from frontend.dialects.openai_fields import MAX_STOP_CHARACTERS
from frontend.dialects.openai_responses import MAX_METADATA
from frontend.dialects.openai_sampling import MAX_BAD_WORD_LENGTH
from frontend.dialects.openai_tools import EFFORTS
from frontend.item_schemas import INPUT_SCHEMA
from protocol.messages import MAX_DRAFT_TOKENS

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_BOOL: Final[Schema] = {"type": "boolean"}
_OBJECT: Final[Schema] = {"type": "object"}
_IDS: Final[Schema] = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_BLOCKS: Final[Schema] = {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}]}
_WORDS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "pattern": r"\S", "maxLength": MAX_BAD_WORD_LENGTH},
}
_STOP: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS}
_STOPS: Final[Schema] = {"anyOf": [_STOP, {"type": "array", "items": _STOP}]}
# Of a schema as text no more can be said here than that it is text.
_JSON_SCHEMA: Final[Schema] = {"anyOf": [_OBJECT, _TEXT, {"const": True}]}


def _integer(least: int, most: int = 2**53) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _at_least(least: int) -> Schema:
    """Readers know no upper bound; but to JSON Schema 1e308 is an integer, and they do not take it."""
    return _integer(least, 2**64)


def _number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


_MESSAGES: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
            "content": {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}, {"type": "null"}]},
        },
        "required": ["role"],
    },
}
_SOME_IDS: Final[Schema] = {**_IDS, "minItems": 1}
_PROMPT: Final[Schema] = {
    "anyOf": [_TEXT, {**_TEXTS, "minItems": 1}, _SOME_IDS, {"type": "array", "items": _SOME_IDS, "minItems": 1}]
}

FIELD_SCHEMAS: Final[Mapping[str, Schema]] = {
    "model": _TEXT,
    "messages": _MESSAGES,
    "prompt": _PROMPT,
    "content": _TEXT,
    "tokens": _IDS,
    "input": INPUT_SCHEMA,
    "instructions": _TEXT,
    "previous_response_id": _TEXT,
    "store": _BOOL,
    "max_output_tokens": _at_least(0),
    "text": _OBJECT,
    "reasoning": _OBJECT,
    "include": _TEXTS,
    "stream": _BOOL,
    "stream_options": {"type": "object", "properties": {"include_usage": _BOOL}},
    "max_tokens": _at_least(0),
    "max_completion_tokens": _at_least(0),
    "temperature": _number(0, 100),
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": _integer(-1),
    "min_p": _number(0, 1),
    "seed": _integer(-(2**63), 2**63 - 1),
    "stop": _STOPS,
    "stop_sequences": _STOPS,
    "stop_token_ids": _IDS,
    "include_stop_str_in_output": _BOOL,
    "ignore_eos": _BOOL,
    "min_tokens": _integer(0),
    "skip_special_tokens": _BOOL,
    "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000},
    "priority": _integer(-(2**53)),
    "user": _TEXT,
    "n": _at_least(1),
    "best_of": _at_least(1),
    "echo": _BOOL,
    "logprobs": {"anyOf": [_BOOL, _integer(0, 20)]},
    "top_logprobs": _integer(-1, 20),
    "xtc_probability": _number(0, 1),
    "xtc_threshold": _number(0, 0.5),
    "repetition_penalty": _number(0, 100),
    "repetition_context_size": _integer(0),
    "presence_penalty": _number(-2, 2),
    "presence_context_size": _integer(0),
    "frequency_penalty": _number(-2, 2),
    "frequency_context_size": _integer(0),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
        "additionalProperties": _number(-100, 100),
    },
    "allowed_token_ids": _IDS,
    "bad_words": _WORDS,
    "return_tokens_as_token_ids": _BOOL,
    "add_generation_prompt": _BOOL,
    "continue_final_message": _BOOL,
    "chat_template_kwargs": _OBJECT,
    "role_mapping": {"type": "object", "additionalProperties": _TEXT},
    "reasoning_effort": {"enum": [*EFFORTS]},
    "enable_thinking": _BOOL,
    "include_reasoning": _BOOL,
    "tools": {"type": "array", "items": _OBJECT},
    "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
    "parallel_tool_calls": _BOOL,
    "response_format": _OBJECT,
    "structured_outputs": _OBJECT,
    "guided_json": _JSON_SCHEMA,
    "guided_regex": _TEXT,
    "guided_choice": {**_TEXTS, "minItems": 1},
    "guided_grammar": _TEXT,
    "grammar": _TEXT,
    "json_schema": _JSON_SCHEMA,
    "adapters": {"type": "string", "pattern": "^[^/]+$"},
    "cache_salt": {"type": "string", "minLength": 1, "maxLength": 1_024},
    "draft_model": _TEXT,
    "num_draft_tokens": _integer(0, MAX_DRAFT_TOKENS),
    "add_special_tokens": _BOOL,
    "add_special": _BOOL,
    "return_token_strs": _BOOL,
    "with_pieces": _BOOL,
    "thinking": _OBJECT,
    "output_config": _OBJECT,
    "output_format": _OBJECT,
    "system": _BLOCKS,
    "metadata": {"type": "object", "additionalProperties": _TEXT, "maxProperties": MAX_METADATA},
    "max_tool_calls": _at_least(1),
    "prompt_cache_key": _TEXT,
    "safety_identifier": _TEXT,
}
# Where a dialect takes less under a name than others do.
CHAT_SHAPES: Final[Mapping[str, Schema]] = {"logprobs": _BOOL}
TOKENIZE_SHAPES: Final[Mapping[str, Schema]] = {**CHAT_SHAPES, "prompt": _TEXT}
MESSAGES_SHAPES: Final[Mapping[str, Schema]] = {"tool_choice": _OBJECT}
RESPONSES_SHAPES: Final[Mapping[str, Schema]] = {"top_logprobs": _integer(0, 20)}
NO_SHAPES: Final[Mapping[str, Schema]] = {}


def table_schema(table: FieldTable, required: tuple[str, ...], shapes: Mapping[str, Schema] = NO_SHAPES) -> Schema:
    """A body's schema: its fields in the table's order, each with the table's own words. Others are allowed.

    shapes: the dialect's own. Each field that is honoured has a schema here or there, or this raises KeyError.
    """
    known = {**FIELD_SCHEMAS, **shapes}
    properties = {name: _property(known, name, rule, is_required=name in required) for name, rule in table.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def _property(known: Mapping[str, Schema], name: str, rule: FieldRule, *, is_required: bool) -> Schema:
    match rule:
        case Honoured(note=note):
            # Null counts as absent.
            schema = known[name] if is_required else {"anyOf": [known[name], {"type": "null"}]}
            return schema | ({"description": note} if note else {})
        case NeutralOnly(neutral=neutral, advice=advice):
            return {"enum": [*neutral, None], "description": f"other values are refused: {advice}"}
        case Harmless(why=why):
            return {"description": f"without effect: {why}"}
        case Named():
            return {"description": "without effect, and named in x-convoy-ignored"}
