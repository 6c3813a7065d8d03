"""Kimi K3's XTML: a part for thinking, a part for the answer, and the message's end."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_SEPARATOR: Final = "<|sep|>"
_BEGIN: Final = f"<|open|>think{_SEPARATOR}"
_END: Final = f"<|close|>think{_SEPARATOR}"
_DROPPED: Final = (
    f"<|open|>response{_SEPARATOR}",
    f"<|close|>response{_SEPARATOR}",
    f"<|close|>message{_SEPARATOR}",
    "<|end_of_msg|>",
)


def _claims(template: str) -> bool:
    return "<|open|>" in template and "'think'" in template and _SEPARATOR in template


KIMI_K3: Final = ReasoningFormat(
    name="kimi_k3", claims=_claims, begins=(_BEGIN,), ends=(_END,), dropped=_DROPPED, is_ended_by_calls=True
)
