"""MiniCPM 3's and 4's thought before a call or an answer."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<|thought_start|>"
_END: Final = "<|thought_end|>"


def _claims(template: str) -> bool:
    return _END in template


MINICPM: Final = ReasoningFormat(name="minicpm", claims=_claims, begins=(_BEGIN,), ends=(_END,))
