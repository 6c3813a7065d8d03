"""JSON schemas of request fields, by name: what the tables of the dialects do not say. Owns types, no verdicts."""

from collections.abc import Mapping
from typing import Any, Final

from frontend.dialects.fields import FieldRule, FieldTable, Harmless, Honoured, Named, NeutralOnly

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_BOOL: Final[Schema] = {"type": "boolean"}
_OBJECT: Final[Schema] = {"type": "object"}
_IDS: Final[Schema] = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}


def _integer(least: int, most: int = 2**53) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


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
_PROMPT: Final[Schema] = {"anyOf": [_TEXT, _TEXTS, _IDS, {"type": "array", "items": _IDS}]}

FIELD_SCHEMAS: Final[Mapping[str, Schema]] = {
    "model": _TEXT,
    "messages": _MESSAGES,
    "prompt": _PROMPT,
    "content": _TEXT,
    "tokens": _IDS,
    "input": {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}]},
    "instructions": _TEXT,
    "previous_response_id": _TEXT,
    "store": _BOOL,
    "max_output_tokens": _integer(0),
    "text": _OBJECT,
    "reasoning": _OBJECT,
    "include": _TEXTS,
    "stream": _BOOL,
    "stream_options": {"type": "object", "properties": {"include_usage": _BOOL}},
    "max_tokens": _integer(0),
    "max_completion_tokens": _integer(0),
    "temperature": _number(0, 100),
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": _integer(-1),
    "min_p": _number(0, 1),
    "seed": _integer(-(2**63), 2**63 - 1),
    "stop": {"anyOf": [_TEXT, _TEXTS]},
    "stop_sequences": _TEXTS,
    "stop_token_ids": _IDS,
    "include_stop_str_in_output": _BOOL,
    "ignore_eos": _BOOL,
    "min_tokens": _integer(0),
    "skip_special_tokens": _BOOL,
    "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000},
    "user": _TEXT,
    "n": _integer(1),
    "best_of": _integer(1),
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
    "logit_bias": {"type": "object", "additionalProperties": _number(-100, 100)},
    "allowed_token_ids": _IDS,
    "bad_words": _TEXTS,
    "return_tokens_as_token_ids": _BOOL,
    "add_generation_prompt": _BOOL,
    "continue_final_message": _BOOL,
    "chat_template_kwargs": _OBJECT,
    "reasoning_effort": _TEXT,
    "include_reasoning": _BOOL,
    "tools": {"type": "array", "items": _OBJECT},
    "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
    "parallel_tool_calls": _BOOL,
    "response_format": _OBJECT,
    "structured_outputs": _OBJECT,
    "guided_json": {"anyOf": [_OBJECT, _TEXT]},
    "guided_regex": _TEXT,
    "guided_choice": _TEXTS,
    "guided_grammar": _TEXT,
    "grammar": _TEXT,
    "json_schema": _OBJECT,
    "add_special_tokens": _BOOL,
    "add_special": _BOOL,
    "return_token_strs": _BOOL,
    "with_pieces": _BOOL,
    "thinking": _OBJECT,
    "output_config": _OBJECT,
}


def table_schema(table: FieldTable, required: tuple[str, ...]) -> Schema:
    """A body's schema: its fields in the table's order, each with the table's own words. Others are allowed."""
    properties = {name: _property(name, rule, is_required=name in required) for name, rule in table.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def _property(name: str, rule: FieldRule, *, is_required: bool) -> Schema:
    match rule:
        case Honoured(note=note):
            schema = FIELD_SCHEMAS.get(name, {})
            if schema and not is_required:
                # Null counts as absent.
                schema = {"anyOf": [schema, {"type": "null"}]}
            return schema | ({"description": note} if note else {})
        case NeutralOnly(neutral=neutral, advice=advice):
            return {"enum": [*neutral, None], "description": f"other values are refused: {advice}"}
        case Harmless(why=why):
            return {"description": f"without effect: {why}"}
        case Named():
            return {"description": "without effect, and named in x-convoy-ignored"}
