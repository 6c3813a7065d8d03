"""Command R7B's and A's plans, and the marks around their answers."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<|START_THINKING|>"
_END: Final = "<|END_THINKING|>"
_DROPPED: Final = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")


def _claims(template: str) -> bool:
    return _END in template


COHERE_COMMAND: Final = ReasoningFormat(
    name="cohere_command", claims=_claims, begins=(_BEGIN,), ends=(_END,), dropped=_DROPPED, is_ended_by_calls=True
)
