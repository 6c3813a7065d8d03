"""Calls made by chance from a seed, and the text that a format's template writes them in: a corpus for every format.

The templates beside are short ones of our own; they write calls as the models' do.
"""

import functools
import json
import re
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from frontend.dialects.base import Tool
from frontend.parsers.registry import TOOL_FORMATS, Declared, formats_of
from frontend.text.structure import ReplyForm
from frontend.text.template import ChatTemplate
from tests.frontend.parsers.golden_cases import Told, told

FOLDER = Path(__file__).parent / "templates"

_STRING = {"type": "string"}
_KINDS: dict[str, dict[str, Any]] = {
    "text": _STRING,
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "names": {"type": "array", "items": _STRING},
    "options": {"type": "object"},
    "limit": {"type": ["integer", "null"]},
    "unit": {"enum": ["C", "F"]},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "items": {"type": "array", "items": {"type": "object"}},
}
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(name="now", parameters={"type": "object", "properties": {}}),
        Tool(name="everything", parameters={"type": "object", "properties": _KINDS}),
        Tool(name="write-file", parameters={"type": "object", "properties": {"path": _STRING, "content": _STRING}}),
        Tool(
            name="mcp__files.read_2",
            parameters={"type": "object", "properties": {"path": _STRING, "count": {"type": "integer"}}},
        ),
    )
}
_PLAIN = ("Oslo", "a b", "漢字", "😀", "naïve café", "5", "true", "x = 1", "3.50", "null", "(a, b)", "a=b", "50 %")
_HARD = (
    "it's", 'say "hi"', "C:\\new\\table", "<b>bold</b> & more", "{'a': [1]}", '{"a": 1}', "a\n  b\n\tc\n", "  led",
    "end  ", "if a < b:\n    return '\\n'\n", "[x]", "`code`", "```python\nprint('x')\n```", "\u2028", "e\u0301",
    '#!/bin/sh\necho "$A"',
)  # fmt: skip
_SCALARS = {
    "integer": (0, 7, -3, 12345678901234567890),
    "number": (0.5, -1.25, 3, 1e-07, 2.0),
    "boolean": (True, False),
}
_KEYS = ("a", "b_2", "größe", "Key")


class Call(NamedTuple):
    """A call as a client should be told it."""

    name: str
    arguments: dict[str, Any]


class GeneratedReply(NamedTuple):
    """Calls, and the text that a model writes to make them."""

    calls: list[Call]
    text: str


def templates() -> dict[str, str]:
    """Every template by the name of its format."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}


def generated_replies(template: str, seed: int, count: int, *, is_plain: bool = False) -> list[GeneratedReply]:
    """Replies of one to three calls. is_plain: without what needs care inside of strings."""
    chance = Random(seed)
    texts = _PLAIN if is_plain else _PLAIN + _HARD
    replies: list[GeneratedReply] = []
    for _ in range(count):
        calls = [_call(chance, texts) for _ in range(chance.choice((1, 1, 2, 3)))]
        replies.append(GeneratedReply(calls, written(template, calls)))
    return replies


def written(template: str, calls: list[Call], **message: str) -> str:
    """What the template writes for an assistant's turn with these calls."""
    functions = [{"type": "function", "function": {"name": name, "arguments": args}} for name, args in calls]
    turn = {"role": "assistant", "content": "", "tool_calls": functions, **message}
    prompt = _compiled(template).render([turn], add_generation_prompt=False, literal=repr)
    return prompt.partition("<<assistant>>")[2].removesuffix("<</>>")


@functools.cache
def _compiled(template: str) -> ChatTemplate:
    """Compiling one takes far longer than writing with it, and reading what it wrote."""
    return ChatTemplate(template, {})


def forceable(templates: dict[str, str]) -> list[str]:
    """The names of the templates' formats whose calls can be forced."""
    return [name for name in templates if name in TOOL_FORMATS and TOOL_FORMATS[name].grammar is not None]


def forced_text(template: str, calls: list[Call]) -> str:
    """What a model writes that must call: the calls alone, from their first mark on."""
    text = written(template, calls).strip().removesuffix("<|call|>")
    # The recipient is written before the channel by the template, and behind it by the model.
    return re.sub(r" ?to=(\S+?)<\|channel\|>commentary json", r"<|channel|>commentary to=\1 <|constrain|>json", text)


@functools.cache
def form_of(template: str) -> ReplyForm:
    """The form of replies that the template's formats read."""
    formats = formats_of(Declared(template))
    return ReplyForm(call_format=formats.tools, tools=TOOLS, reasoning=formats.reasoning)


def calls_of(pieces: Told) -> list[Call] | None:
    """The calls that were told; None if one has no end, its arguments are no JSON, or anything else was told."""
    calls: list[Call] = []
    for at, (kind, text) in enumerate(pieces):
        if kind == "call":
            arguments, end = pieces[at + 1 : at + 3] if len(pieces) > at + 2 else (["", ""], ["", ""])
            if (arguments[0], end[0]) != ("arguments", "end"):
                return None
            try:
                calls.append(Call(text, json.loads(arguments[1])))
            except json.JSONDecodeError:
                return None
        elif kind in ("text", "reasoning"):
            return None
    return calls


def read_calls(template: str, text: str) -> list[Call] | None:
    """The calls that the template's formats read in a text that comes in small pieces."""
    return calls_of(told(form_of(template), [text[at : at + 7] for at in range(0, len(text), 7)]))


def _call(chance: Random, texts: tuple[str, ...]) -> Call:
    tool = chance.choice(list(TOOLS.values()))
    properties = (tool.parameters or {})["properties"]
    assert isinstance(properties, dict)
    named = [name for name in properties if chance.random() < 0.6]
    return Call(tool.name, {name: _value(chance, properties[name], texts) for name in named})


def _value(chance: Random, schema: dict[str, Any], texts: tuple[str, ...], depth: int = 0) -> Any:
    kind = schema.get("type")
    if kind == "string":
        return "".join(chance.choice(texts) for _ in range(chance.choice((1, 1, 2, 4))))
    if kind == "array":
        return [_value(chance, schema["items"], texts, depth + 1) for _ in range(chance.randrange(4))]
    if kind == "object":
        return {key: _any(chance, texts, depth + 1) for key in chance.sample(_KEYS, chance.randrange(4))}
    return chance.choice(schema["enum"] if "enum" in schema else _SCALARS.get(str(kind), (None, 10)))


def _any(chance: Random, texts: tuple[str, ...], depth: int) -> Any:
    kinds = [_STRING, {"type": "integer"}, {"type": "boolean"}, {"type": "nullable"}]
    if depth < 4:
        kinds += [{"type": "object"}, {"type": "array", "items": _STRING}]
    return _value(chance, chance.choice(kinds), texts, depth)
