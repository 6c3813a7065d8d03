"""Muse's messages: to itself is reasoning, to the user and as commentary is the answer."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_MESSAGE: Final = "<|message|>"
_NEXT: Final = "<|start|>assistant"
_ENDS: Final = ("<|eom|>", "<|eot|>")
_ANSWERS: Final = (f"to=user{_MESSAGE}", f"to=commentary{_MESSAGE}")


def _claims(template: str) -> bool:
    return "to=self" in template and _MESSAGE in template


MUSE_SPARK: Final = ReasoningFormat(
    name="muse_spark",
    claims=_claims,
    begins=(f"to=self{_MESSAGE}",),
    ends=(*_ENDS, _NEXT),
    dropped=(*_ENDS, _NEXT, *_ANSWERS),
    is_ended_by_calls=True,
)
