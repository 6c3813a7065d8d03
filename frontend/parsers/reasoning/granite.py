"""Granite 3.2's and 3.3's words before its thoughts and before its answer."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

# Quantised models say "Here's", too.
_BEGINS: Final = ("Here is my thought process:", "Here's my thought process:")
_ENDS: Final = ("Here is my response:", "Here's my response:")


def _claims(template: str) -> bool:
    return "Here is my thought process" in template


GRANITE: Final = ReasoningFormat(name="granite", claims=_claims, begins=_BEGINS, ends=_ENDS)
