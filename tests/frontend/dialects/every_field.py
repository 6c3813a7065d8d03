"""Every dialect's fields, and values of every kind to give them: for tests that hold of all of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from frontend.dialects.anthropic import ANTHROPIC_FIELDS, parse_message
from frontend.dialects.base import Generation
from frontend.dialects.fields import FieldTable
from frontend.dialects.openai_chat import CHAT_FIELDS, parse_chat
from frontend.dialects.openai_completions import COMPLETION_FIELDS, parse_completion
from frontend.dialects.openai_responses import RESPONSES_FIELDS, parse_responses


class Spoken(NamedTuple):
    """A dialect's table and parser, the least body that it takes, and what some fields only count beside."""

    path: str
    table: FieldTable
    parse: Callable[[object], Generation]
    least: Mapping[str, Any]
    beside: tuple[Mapping[str, Any], ...]


TURN = {"role": "user", "content": "Hello."}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
DIALECTS = {
    "chat": Spoken(
        "/v1/chat/completions",
        CHAT_FIELDS,
        parse_chat,
        {"messages": [TURN]},
        (
            {"logprobs": True},
            {"stream": True},
            {"tools": [{"type": "function", "function": FUNCTION}]},
            {"messages": [TURN, {"role": "assistant", "content": "Well"}]},
        ),
    ),
    "completions": Spoken(
        "/v1/completions",
        COMPLETION_FIELDS,
        parse_completion,
        {"prompt": "Hello."},
        ({"logprobs": True}, {"stream": True}),
    ),
    "responses": Spoken(
        "/v1/responses",
        RESPONSES_FIELDS,
        parse_responses,
        {"input": "Hello."},
        ({"top_logprobs": 1}, {"stream": True}, {"tools": [{"type": "function", **FUNCTION}]}),
    ),
    "messages": Spoken(
        "/v1/messages",
        ANTHROPIC_FIELDS,
        parse_message,
        {"messages": [TURN]},
        ({"tools": [{"name": "f", "input_schema": {}}]},),
    ),
}
# One of these means something to any field.
VALUES: list[Any] = [
    *("x", "auto", "none", "low", 'root ::= "x"', True, False, 1, 5, 0.5),
    *(["x"], [5], [TURN, TURN], ["message.output_text.logprobs"], {"5": 1}, {"a": "b"}, SCHEMA, {"format": SCHEMA}),
    *(
        {"json_object": True},
        {"type": "json_object"},
        {"effort": "low"},
        {"include_usage": True},
        {"type": "enabled"},
        {"type": "none"},
    ),
    *(
        [{"type": "function", "function": FUNCTION}],
        [{"type": "function", **FUNCTION}],
        [{"name": "f", "input_schema": {}}],
    ),
]
