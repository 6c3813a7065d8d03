"""Requests with a conversation of about 100,000 tokens, for each route that reads one.

Owns the bodies; what is measured with them is others'.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_SENTENCES: Final = (
    "The convoy left the harbour at dawn, and its drivers kept the distance that they had agreed on. ",
    "def total(rows: list[int]) -> int:\n    return sum(row * 2 for row in rows if row > 0)\n\n",
    "Nobody had counted the bridges {between} here and the [river], so they wrote down every one of them: 1, 2, 3. ",
    'The log says: {"level": "info", "event": "row.finished", "tokens": 1284, "ms": 93.5}. ',
)
TURNS: Final = 500
TOOLS: Final = 20


class LongChat(NamedTuple):
    """One request. name: of the case."""

    name: str
    path: str
    body: bytes


def prose(characters: int, start: int = 0) -> str:
    """Text in which no two long stretches are alike, so that no cache of words spares the tokenizer its work."""
    parts: list[str] = []
    length = 0
    number = start
    while length < characters:
        parts.append(f"{number * 7919 % 100_003} {_SENTENCES[number % len(_SENTENCES)]}")
        length += len(parts[-1])
        number += 1
    return "".join(parts)[:characters]


def turns(characters: int) -> list[dict[str, Any]]:
    """A user and an assistant in turns, the user last."""
    each = characters // TURNS
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": prose(each, index * 31)} for index in range(TURNS + 1)]


def tools() -> list[dict[str, Any]]:
    """Functions with parameters of several kinds, described at length."""
    text = {"type": "string", "description": prose(200)}
    properties: Mapping[str, Any] = {f"field_{number}": text for number in range(8)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return [{"name": f"tool_{number}", "description": prose(400), "parameters": schema} for number in range(TOOLS)]


def long_chats(characters: int) -> list[LongChat]:
    """Each case once; replies have one token."""
    one = [{"role": "user", "content": prose(characters)}]
    many, functions = turns(characters), tools()
    chat_tools = [{"type": "function", "function": function} for function in functions]
    their_tools = [
        {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
        for function in functions
    ]
    flat_tools = [{"type": "function", **function} for function in functions]
    return [
        _case("chat, one message", "/v1/chat/completions", {"messages": one, "max_tokens": 1}),
        _case("chat, 500 turns", "/v1/chat/completions", {"messages": many, "tools": chat_tools, "max_tokens": 1}),
        _case(
            "messages", "/v1/messages", {"model": "fake-model", "messages": many, "tools": their_tools, "max_tokens": 1}
        ),
        _case(
            "count_tokens", "/v1/messages/count_tokens", {"model": "fake-model", "messages": many, "tools": their_tools}
        ),
        _case("responses", "/v1/responses", {"input": many, "tools": flat_tools, "max_output_tokens": 1}),
        _case("completions", "/v1/completions", {"prompt": one[0]["content"], "max_tokens": 1}),
        _case("tokenize", "/tokenize", {"prompt": one[0]["content"]}),
        _case("tokenize with strings", "/tokenize", {"prompt": one[0]["content"], "return_token_strs": True}),
        _case("apply-template", "/apply-template", {"messages": many}),
    ]


def _case(name: str, path: str, content: dict[str, Any]) -> LongChat:
    return LongChat(name, path, json.dumps(content).encode())
