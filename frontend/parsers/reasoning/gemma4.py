"""Gemma 4's channel of thought."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<|channel>thought"
_END: Final = "<channel|>"


def _claims(template: str) -> bool:
    return "<|channel>" in template


GEMMA4: Final = ReasoningFormat(name="gemma4", claims=_claims, begins=(_BEGIN,), ends=(_END,))
