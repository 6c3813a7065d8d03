"""Seed-OSS's think tags."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_BEGIN: Final = "<seed:think>"
_END: Final = "</seed:think>"


def _claims(template: str) -> bool:
    return _END in template


SEED: Final = ReasoningFormat(name="seed", claims=_claims, begins=(_BEGIN,), ends=(_END,))
