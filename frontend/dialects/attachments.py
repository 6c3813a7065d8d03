"""Parts of a conversation that are no text: refused where they are asked about, a note where they are history.

A client sends its whole conversation each time: one image would end it for good, were it refused wherever it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from frontend.dialects.values import shown
from frontend.errors import RequestError
from protocol.errors import ErrorCode

# A word for each by its part's type, in whatever dialect.
ATTACHMENT_TYPES: Final[Mapping[str, str]] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "audio_url": "recording",
    "input_audio": "recording",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "document",
}


def is_attachment(kind: object) -> bool:
    """Whether parts of this type are no text."""
    return isinstance(kind, str) and kind in ATTACHMENT_TYPES


def note(kind: str) -> str:
    """What the model is told in place of an attachment of this type."""
    return f"[{ATTACHMENT_TYPES[kind]} omitted: this model reads text only]"


def asked_index(roles: Sequence[object]) -> int | None:
    """Which message is asked now: the last of the user, unless the assistant has answered it.

    A last message of the assistant is no answer: it is where the reply begins.
    """
    last = len(roles) - 1
    for index in range(last, -1, -1):
        if roles[index] == "user":
            return index
        if roles[index] == "assistant" and index < last:
            return None
    return None


def refuse_attachments(content: object, place: Callable[[int], str]) -> None:
    """Raises RequestError(UNSUPPORTED) for the first one among a message's parts. place: of the part of an index."""
    if not isinstance(content, list):
        return
    for index, part in enumerate(cast(list[object], content)):
        kind = cast(dict[str, object], part).get("type") if isinstance(part, dict) else None
        if is_attachment(kind):
            where = place(index)
            raise RequestError(
                ErrorCode.UNSUPPORTED,
                f"`{where}` is a part of the type {shown(kind)}, which is not supported: "
                "this model reads text only; leave it out",
                where,
            )
