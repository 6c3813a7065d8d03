"""Calls of tools that another provider ran, as the model reads them in a conversation's history: notes of plain text.

Such a call cannot be made here, and a client sends its whole history each time: refused, it would end the conversation.
"""

from typing import cast

import msgspec


def call_note(name: str, arguments: object, verb: str = "called") -> str:
    """What the model is told of a call. arguments: as JSON has them; None where there are none."""
    return f"[{verb} {name}]" if arguments is None else f"[{verb} {name}: {as_told(arguments)}]"


def result_note(name: str, text: str) -> str:
    """What the model is told of what a call came to."""
    return f"[result of {name}: {text}]"


def as_told(value: object) -> str:
    """A value for the model: text as it is, lists line by line, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(as_told(item) for item in cast(list[object], value))
    return msgspec.json.encode(value).decode()


def as_error(text: str) -> str:
    """The result of a call that failed, so that the model sees that it did."""
    return text if "error" in text.partition("\n")[0].lower() else f"Error: {text}"
