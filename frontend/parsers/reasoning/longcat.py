"""LongCat's think tags."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<longcat_think>"
_END: Final = "</longcat_think>"


def _claims(template: str) -> bool:
    return _END in template


LONGCAT: Final = ReasoningFormat(name="longcat", claims=_claims, begins=(_BEGIN,), ends=(_END,))
