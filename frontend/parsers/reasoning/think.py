"""Think tags: DeepSeek R1, Qwen 3, SmolLM 3 and most others."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<think>"
_END: Final = "</think>"


def _claims(template: str) -> bool:
    return _END in template


THINK: Final = ReasoningFormat(name="think", claims=_claims, begins=(_BEGIN,), ends=(_END,))
