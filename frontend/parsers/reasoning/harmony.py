"""gpt-oss's messages: analysis is reasoning, one to a tool is a call, final and commentary are the answer."""

import re
from typing import Final

from frontend.parsers.base import HeaderKind, MessageHeaders, ReasoningFormat

_CHANNEL: Final = "<|channel|>"
_MESSAGE: Final = "<|message|>"
_ANALYSIS: Final = f"{_CHANNEL}analysis{_MESSAGE}"
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
_RECIPIENT: Final = re.compile(r"\bto=(?!assistant\b|user\b|commentary\b|analysis\b|final\b)[\w.-]+")


def _claims(template: str) -> bool:
    return _ANALYSIS in template


def _kind_of(header: str) -> HeaderKind:
    """Of several channels the last counts: the model sometimes writes a broken header before the one it means."""
    channel = header.rpartition(_CHANNEL)[2]
    if _RECIPIENT.search(header):
        return "call"
    return "reasoning" if channel.strip().startswith("analysis") else "text"


HARMONY: Final = ReasoningFormat(
    name="harmony",
    claims=_claims,
    begins=(_ANALYSIS,),
    ends=_ENDS,
    dropped=_ENDS,
    behind_end="<|start|>assistant",
    headers=MessageHeaders(
        begins=("<|start|>", _CHANNEL), start_begins=("to=functions.",), end=_MESSAGE, kind_of=_kind_of
    ),
)
