"""Magistral's and Mistral Small 4's tags."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "[THINK]"
_END: Final = "[/THINK]"


def _claims(template: str) -> bool:
    return _END in template


MISTRAL: Final = ReasoningFormat(name="mistral", claims=_claims, begins=(_BEGIN,), ends=(_END,))
