"""Anthropic's messages and system prompt as chat templates want them: plain dicts, text content, calls as OpenAI's.

Owns every rule about a message and the order of what it becomes; a block's own content is anthropic_blocks'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.dialects.anthropic_blocks import ReadBlock, ReadNotes, ToolChange, read_blocks, refuse_attachments
from frontend.dialects.attachments import asked_index
from frontend.dialects.base import ChatPrompt
from frontend.dialects.fields import FieldTable, Honoured, Named, NeutralOnly, check_fields
from frontend.dialects.values import as_list, as_object, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MESSAGE_FIELDS: Final[FieldTable] = {
    "role": Honoured("user, assistant, or system in the midst of a conversation"),
    "content": Honoured("a string or blocks; texts are joined by line breaks, in an assistant's turn by nothing"),
    "clear_at": NeutralOnly(("never",), "only a message of the role system has it: leave it out"),
    "output_config": NeutralOnly(({},), "only a message of the role system has it: leave it out"),
}
SYSTEM_MESSAGE_FIELDS: Final[FieldTable] = {
    "role": Honoured(),
    "content": Honoured("given in the user's turn, within the tags <system-reminder>; templates take one system turn"),
    "clear_at": Honoured("next_user_message: left out once such a message follows"),
    "output_config": Named(({},)),
}
_ROLES: Final = ("user", "assistant", "system")
_BLOCKS: Final = "a string or an array of at least one content block"
_MESSAGES: Final = "an array of at least one message"


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """prompt: for the template. ignored: names of what is. tool_changes: in their order."""

    prompt: ChatPrompt
    ignored: tuple[str, ...]
    tool_changes: tuple[ToolChange, ...]


@dataclass(slots=True)
class _Conversation:
    """Messages for the template as they grow. call_names: of the calls so far, by their ids."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    notes: ReadNotes = field(default_factory=ReadNotes)
    call_names: dict[str, str] = field(default_factory=dict[str, str])

    def append(self, message: dict[str, Any]) -> None:
        """Turns of one role that follow each other are one turn, as in Anthropic's API; many templates insist on it."""
        last: dict[str, Any] = self.messages[-1] if self.messages else {"role": None}
        if message["role"] != last["role"] or message["role"] == "tool" or "tool_calls" in last:
            self.messages.append(message)
            return
        last["content"] = "\n".join(text for text in (last["content"], message["content"]) if text)
        if "reasoning_content" in message and "reasoning_content" in last:
            message["reasoning_content"] = f"{last['reasoning_content']}\n{message['reasoning_content']}"
        last |= {name: message[name] for name in ("reasoning_content", "tool_calls") if name in message}


def read_prompt(body: Mapping[str, object]) -> ReadPrompt:
    """What a body's `system` and `messages` say. Raises RequestError naming the place.

    A last message of the assistant is the beginning of the reply, which goes on in it.
    """
    conversation = _Conversation()
    system = body.get("system")
    if system is not None:
        _add_system(_system_text(system, "system", conversation.notes), conversation)
    items = as_list(body.get("messages"), "messages", _MESSAGES)
    if not items:
        raise wrong("messages", items, _MESSAGES)
    messages = [as_object(item, f"messages.{index}") for index, item in enumerate(items)]
    last_user = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    asked = asked_index([message.get("role") for message in messages])
    for index, message in enumerate(messages):
        _add_message(message, f"messages.{index}", conversation, has_user_after=index < last_user)
        if index == asked:
            refuse_attachments(message["content"], f"messages.{index}.content")
    notes = conversation.notes
    return ReadPrompt(_prompt(conversation, len(items) - 1), tuple(notes.ignored), tuple(notes.tool_changes))


def _prompt(conversation: _Conversation, last_index: int) -> ChatPrompt:
    messages = conversation.messages
    last = messages[-1] if messages else {"role": None}
    if last["role"] != "assistant":
        if not messages:
            raise RequestError(ErrorCode.INVALID_REQUEST, "`messages` has no text in it", "messages")
        return ChatPrompt(tuple(messages))
    if "tool_calls" in last:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "a last message of the role assistant is continued, and one with a tool_use cannot be: "
            "send its tool_result after it",
            f"messages.{last_index}",
        )
    if not last["content"] and "reasoning_content" not in last:
        # Nothing to continue: the reply begins anew.
        messages.pop()
        return _prompt(conversation, last_index)
    return ChatPrompt(tuple(messages), add_generation_prompt=False, continue_final_message=True)


def _add_message(
    message: Mapping[str, object], where: str, conversation: _Conversation, *, has_user_after: bool
) -> None:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong(f"{where}.role", role, "one of " + ", ".join(_ROLES))
    names = check_fields(message, SYSTEM_MESSAGE_FIELDS if role == "system" else MESSAGE_FIELDS, f"{where}.")
    # Named without the index: a long conversation repeats them.
    conversation.notes.ignored |= dict.fromkeys(f"messages[]{name.removeprefix(where)}" for name in names)
    content = message.get("content")
    match role:
        case "user":
            _add_user_turn(_blocks(content, f"{where}.content", role, conversation.notes), conversation)
        case "assistant":
            _add_assistant_turn(_blocks(content, f"{where}.content", role, conversation.notes), conversation)
        case _:
            text = "" if content is None else _system_text(content, f"{where}.content", conversation.notes)
            if not (_is_cleared(message, where) and has_user_after):
                _add_system(text, conversation)


def _blocks(content: object, where: str, role: str, notes: ReadNotes) -> list[ReadBlock]:
    if isinstance(content, str):
        return [ReadBlock("text", content)]
    items = as_list(content, where, _BLOCKS)
    if not items and role != "assistant":
        raise wrong(where, items, _BLOCKS)
    return read_blocks(items, role, where, notes)


def _add_user_turn(blocks: list[ReadBlock], conversation: _Conversation) -> None:
    """Each tool_result is a message of its own and comes before the text, wherever it stood."""
    for block in blocks:
        if block.kind == "tool_result":
            result: dict[str, Any] = {"role": "tool", "content": block.text, "tool_call_id": block.id}
            name = conversation.call_names.get(block.id)
            if name is not None:
                result["name"] = name
            conversation.append(result)
    texts = [block.text for block in blocks if block.kind in ("text", "note")]
    if texts:
        conversation.append({"role": "user", "content": "\n".join(texts)})


def _add_assistant_turn(blocks: list[ReadBlock], conversation: _Conversation) -> None:
    text = _said(blocks)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    reasoning = "\n".join(block.text for block in blocks if block.kind == "thinking" and block.text)
    if reasoning:
        message["reasoning_content"] = reasoning
    calls = [block for block in blocks if block.kind == "tool_use"]
    if calls:
        conversation.call_names |= {call.id: call.name for call in calls}
        message["tool_calls"] = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    conversation.append(message)


def _said(blocks: list[ReadBlock]) -> str:
    """An assistant's words. A citation splits one sentence into several blocks; a note has lines of its own."""
    words = ""
    for block in blocks:
        if block.kind == "note":
            words += f"\n{block.text}\n" if words and not words.endswith("\n") else f"{block.text}\n"
        elif block.kind == "text":
            words += block.text
    return words


def _add_system(text: str, conversation: _Conversation) -> None:
    """The first is the template's system turn. Later ones stay in their place: moved to the front, they would
    change the beginning of a conversation that has been computed already.
    """
    if not text:
        return
    if all(message["role"] == "system" for message in conversation.messages):
        conversation.append({"role": "system", "content": text})
    else:
        conversation.append({"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"})


def _system_text(value: object, where: str, notes: ReadNotes) -> str:
    if isinstance(value, str):
        return value
    items = as_list(value, where, "a string or an array of text blocks")
    return "\n".join(block.text for block in read_blocks(items, "system", where, notes))


def _is_cleared(message: Mapping[str, object], where: str) -> bool:
    match message.get("clear_at"):
        case None | "never":
            return False
        case "next_user_message":
            return True
        case other:
            raise wrong(f"{where}.clear_at", other, "never or next_user_message")
