"""At which lengths a chat's prompt is worth keeping: what the conversation's next turn, or another one, begins with.

Asks the chat template itself; owns no text of the reply.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from frontend.dialects.base import ChatPrompt, Prompt, ToolUse
from frontend.errors import RequestError
from frontend.model_text import ModelText
from frontend.reply_form import rendered

# What nobody says: where a rendering differs from another by them, the rest is the template's.
_REPLY: Final = "\x01"
_QUESTION: Final = "\x02"
_SYSTEM_ROLES: Final = ("system", "developer")


def snapshot_lengths(prompt: Prompt, ids: Sequence[int], tools: ToolUse | None, text: ModelText) -> tuple[int, ...]:
    """Ascending, in tokens of the prompt, none of them all of it. Empty for what is no chat.

    Each ends behind a special token: the tokens before one are the same whatever comes after it.
    """
    if not isinstance(prompt, ChatPrompt):
        return ()
    whole = rendered(prompt, tools, text)
    special = [position for position, id_ in enumerate(ids, start=1) if id_ in text.tokenizer.special_ids]
    lengths: set[int] = set()
    for turn in (_next_turn, _other_conversation):
        messages = turn(prompt)
        try:
            other = rendered(replace(prompt, messages=messages, continue_final_message=False), tools, text)
        except RequestError:
            # The template takes no such conversation: then there will be none.
            continue
        count = text.tokenizer.count_special(_shared_text(whole, other))
        if 0 < count <= len(special) and special[count - 1] < len(ids):
            lengths.add(special[count - 1])
    return tuple(sorted(lengths))


def _next_turn(prompt: ChatPrompt) -> tuple[dict[str, Any], ...]:
    """The conversation once it was answered, and went on."""
    messages, reply = prompt.messages, {"role": "assistant", "content": _REPLY}
    if prompt.continue_final_message:
        *messages, last = messages
        reply = {**last, "content": f"{last.get('content') or ''}{_REPLY}"}
    return (*messages, reply, {"role": "user", "content": _QUESTION})


def _other_conversation(prompt: ChatPrompt) -> tuple[dict[str, Any], ...]:
    """Another one, with the same system prompt and tools."""
    count = next((at for at, message in enumerate(prompt.messages) if message.get("role") not in _SYSTEM_ROLES), 0)
    return (*prompt.messages[:count], {"role": "user", "content": _QUESTION})


def _shared_text(left: str, right: str) -> str:
    """The beginning that both have."""
    most = min(len(left), len(right))
    return left[: bisect_left(range(1, most + 1), True, key=lambda size: left[:size] != right[:size])]
