"""Tools for a model whose chat template knows none: told in a system message, calls and results as plain text.

The form is Hermes', which most models have seen. Owns the words; which models need them is reply_form's.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

Message = Mapping[str, Any]

_HEAD: Final = (
    "You can call functions. Each line between <tools> and </tools> describes one, with a JSON schema of its "
    "arguments:\n<tools>\n"
)
_TAIL: Final = (
    "\n</tools>\nTo call a function, write a JSON object with its name and its arguments between tags, like this:\n"
    '<tool_call>\n{"name": "function-name", "arguments": {"argument": "value"}}\n</tool_call>\n'
    "You then get what it returned between <tool_response> and </tool_response>. Call a function only if it helps; "
    "otherwise answer in plain text."
)


def with_tools_as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation in the roles system, user and assistant alone, its text first telling the tools."""
    preamble = _HEAD + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools) + _TAIL
    plain = with_calls_as_text(messages)
    if plain and plain[0]["role"] == "system":
        head = {**plain[0], "content": f"{plain[0]['content']}\n\n{preamble}".strip()}
        return [head, *plain[1:]]
    return [{"role": "system", "content": preamble}, *plain]


def with_calls_as_text(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Earlier calls and their results as text: a template that knows no tools leaves them out without a word."""
    return _joined([_plain(message) for message in messages])


def has_calls(messages: Sequence[Message]) -> bool:
    """Whether a conversation has calls or their results in it."""
    return any(message["role"] == "tool" or message.get("tool_calls") for message in messages)


def with_system_in_user(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """For a template that has no role system: its text begins the first user message."""
    system, *rest = [dict(message) for message in messages]
    for message in rest:
        if message["role"] == "user":
            message["content"] = f"{system['content']}\n\n{message['content']}"
            return rest
    return [{"role": "user", "content": system["content"]}, *rest]


def _plain(message: Message) -> dict[str, Any]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = cast(Sequence[Mapping[str, Any]], message.get("tool_calls") or ())
    if not calls:
        return dict(message)
    written = "\n".join(f"<tool_call>\n{_call(call)}\n</tool_call>" for call in calls)
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**kept, "content": f"{content}\n{written}" if content else written}


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    return json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)


def _joined(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of several calls are one turn: many templates want user and assistant to take turns."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(message)
    return joined
