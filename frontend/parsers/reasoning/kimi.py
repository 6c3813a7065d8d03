"""Kimi VL's and Kimi Dev's think tags, which are no special tokens."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "◁think▷"
_END: Final = "◁/think▷"


def _claims(template: str) -> bool:
    return _BEGIN in template


KIMI: Final = ReasoningFormat(name="kimi", claims=_claims, begins=(_BEGIN,), ends=(_END,))
