"""OpenAI chat messages as chat templates want them: plain dicts, text content, arguments as objects.

Owns every rule about a message; the fields beside `messages` are the dialect's.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from frontend.dialects.attachments import asked_index, is_attachment, note, refuse_attachments
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields, check_nested
from frontend.dialects.values import as_list, as_object, as_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MESSAGE_FIELDS: Final[FieldTable] = {
    "role": Honoured("developer is system, function is tool"),
    "content": Honoured(
        "a string, null in messages of the assistant and of tools, or text parts, which are joined; "
        "a note for each image or file in earlier messages and in those of the role tool"
    ),
    "name": Honoured("given to the template"),
    "tool_calls": Honoured("given to the template, arguments as an object"),
    "tool_call_id": Honoured("given to the template"),
    "reasoning_content": Honoured("given to the template"),
    "reasoning": Honoured("given to the template as reasoning_content"),
    "function_call": NeutralOnly(advice="send it as tool_calls"),
    "audio": NeutralOnly(advice="this server reads text only"),
    "refusal": Honoured("the content of an assistant message that has none"),
    "annotations": Harmless("OpenAI's web search adds it to its replies"),
}
PART_FIELDS: Final[FieldTable] = {
    "type": Honoured(),
    "text": Honoured(),
    "refusal": Honoured(),
    "annotations": Named(),
    "prompt_cache_breakpoint": Harmless("steers only where OpenAI caches"),
}
CALL_FIELDS: Final[FieldTable] = {
    "type": Honoured("function; a custom tool's call is told as that of a function of one string"),
    "id": Honoured("given to the template"),
    "function": Honoured(),
    "custom": Honoured(),
    "index": Harmless("calls stand in their order; clients keep it from a stream"),
}
# The one argument of a function that a custom tool is told as.
CUSTOM_INPUT: Final = "input"
CUSTOM_CALLED_FIELDS: Final[FieldTable] = {"name": Honoured(), "input": Honoured("text")}
CALLED_FIELDS: Final[FieldTable] = {"name": Honoured(), "arguments": Honoured("an object, or its text")}
ROLES: Final[Mapping[str, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
# Tools that return nothing are history, which must not end a conversation.
_MAY_BE_SILENT: Final = ("assistant", "tool")
_PASSED_FIELDS: Final = ("name", "tool_call_id", "reasoning_content", "reasoning")
_TEXT_PARTS: Final[Mapping[str, str]] = {"text": "text", "refusal": "refusal"}


class Conversation(msgspec.Struct, frozen=True):
    """messages: for the template. ignored: fields without effect, named once over all messages."""

    messages: tuple[dict[str, Any], ...]
    ignored: tuple[str, ...]


def read_messages(value: object) -> Conversation:
    """A body's `messages`. Raises RequestError naming the message by its index."""
    if value is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`messages` is missing: send at least one message", "messages")
    items = as_list(value, "messages")
    if not items:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`messages` is empty: send at least one message", "messages")
    messages: list[dict[str, Any]] = []
    ignored: dict[str, None] = {}
    given = [as_object(item, f"messages[{index}]") for index, item in enumerate(items)]
    asked = asked_index([message.get("role") for message in given])
    for index, message in enumerate(given):
        where = f"messages[{index}]"
        # Named without the index: a long conversation repeats them.
        ignored |= dict.fromkeys(f"messages[].{name}" for name in _checked(message, MESSAGE_FIELDS, where))
        plain = _message(message, where, ignored)
        if index == asked or plain["role"] == "system":
            refuse_attachments(message.get("content"), f"{where}.content[{{}}]".format)
        messages.append(plain)
    return Conversation(tuple(messages), tuple(ignored))


def _checked(item: Mapping[str, object], table: FieldTable, where: str) -> list[str]:
    prefix = f"{where}."
    return [name.removeprefix(prefix) for name in check_fields(item, table, prefix)]


def _message(message: Mapping[str, object], where: str, ignored: dict[str, None]) -> dict[str, Any]:
    role = _role(message, where)
    plain: dict[str, Any] = {"role": role, "content": _content(message, role, where, ignored)}
    for name in _PASSED_FIELDS:
        if message.get(name) is not None:
            plain[name] = as_text(message[name], f"{where}.{name}")
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant":
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"`{where}.tool_calls` is only allowed in assistant messages",
                f"{where}.tool_calls",
            )
        items = as_list(calls, f"{where}.tool_calls")
        tool_calls = [_tool_call(call, f"{where}.tool_calls[{index}]", ignored) for index, call in enumerate(items)]
        # Templates ask whether the key is there, not whether the list has anything in it.
        if tool_calls:
            plain["tool_calls"] = tool_calls
    return plain


def _role(message: Mapping[str, object], where: str) -> str:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise wrong(f"{where}.role", role, "one of " + ", ".join(ROLES))
    return ROLES[role]


def _content(message: Mapping[str, object], role: str, where: str, ignored: dict[str, None]) -> str:
    content = message.get("content")
    name = f"{where}.content"
    if content is None:
        if role not in _MAY_BE_SILENT:
            raise wrong(name, None, "a string or an array of text parts")
        refusal = message.get("refusal")
        return "" if refusal is None else as_text(refusal, f"{where}.refusal")
    if isinstance(content, str):
        return content
    parts = as_list(content, name, "a string or an array of text parts")
    if not parts:
        raise wrong(name, parts, "a string or an array of at least one text part")
    return "".join([_part_text(part, f"{name}[{index}]", ignored) for index, part in enumerate(parts)])


def _part_text(part: object, where: str, ignored: dict[str, None]) -> str:
    item = as_object(part, where)
    kind = item.get("type")
    if not isinstance(kind, str):
        raise wrong(f"{where}.type", kind, "a string")
    if is_attachment(kind):
        ignored[f"messages[].content[].{kind}"] = None
        return note(kind)
    field = _TEXT_PARTS.get(kind)
    if field is None:
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{where}` is a part of the type {shown(kind)}, which is not supported: this server reads text parts only",
            param=where,
        )
    ignored |= dict.fromkeys(f"messages[].content[].{name}" for name in _checked(item, PART_FIELDS, where))
    return as_text(item.get(field), f"{where}.{field}")


def _tool_call(value: object, where: str, ignored: dict[str, None]) -> dict[str, Any]:
    call = as_object(value, where)
    ignored |= check_nested(call, CALL_FIELDS, where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{where}.type` is {shown(kind)}: only `function` and `custom` calls are supported",
            param=f"{where}.type",
        )
    path = f"{where}.{kind}"
    called = as_object(call.get(kind), path)
    ignored |= check_nested(called, CUSTOM_CALLED_FIELDS if kind == "custom" else CALLED_FIELDS, path)
    plain: dict[str, Any] = {"type": "function"}
    if call.get("id") is not None:
        plain["id"] = as_text(call["id"], f"{where}.id")
    plain["function"] = {
        "name": as_text(called.get("name"), f"{path}.name"),
        "arguments": {CUSTOM_INPUT: as_text(called.get("input"), f"{path}.input")}
        if kind == "custom"
        else read_arguments(called.get("arguments"), f"{path}.arguments"),
    }
    return plain


def read_arguments(value: object, name: str) -> object:
    """An object where the string holds one; a string that a model left unfinished stays as it is."""
    if value is None or value == "":
        return {}
    if not isinstance(value, str):
        return as_object(value, name)
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return value
