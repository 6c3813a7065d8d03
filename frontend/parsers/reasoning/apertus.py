"""Apertus' deliberation, between two special tokens."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<|inner_prefix|>"
_END: Final = "<|inner_suffix|>"


def _claims(template: str) -> bool:
    return _END in template


APERTUS: Final = ReasoningFormat(
    name="apertus", claims=_claims, begins=(_BEGIN,), ends=(_END,), dropped=("<|assistant_end|>",)
)
