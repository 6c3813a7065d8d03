"""Solar Open 2's think tags."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<|think:start|>"
_END: Final = "<|think:end|>"


def _claims(template: str) -> bool:
    return _END in template


SOLAR: Final = ReasoningFormat(name="solar", claims=_claims, begins=(_BEGIN,), ends=(_END,))
