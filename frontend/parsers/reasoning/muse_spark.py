"""Muse's messages: to itself is reasoning, to the user and as commentary the answer, and to a tool its call's tags."""

from typing import Final

from frontend.parsers.base import HeaderKind, MessageHeaders, ReasoningFormat

_MESSAGE: Final = "<|message|>"
_THOUGHT: Final = f"to=self{_MESSAGE}"
_ENDS: Final = ("<|eom|>", "<|eot|>")


def _claims(template: str) -> bool:
    return "to=self" in template and _MESSAGE in template


def _kind_of(header: str) -> HeaderKind:
    return "reasoning" if header.rstrip().endswith("to=self") else "text"


MUSE_SPARK: Final = ReasoningFormat(
    name="muse_spark",
    claims=_claims,
    begins=(_THOUGHT,),
    ends=_ENDS,
    dropped=_ENDS,
    headers=MessageHeaders(begins=("<|start|>",), start_begins=("to=",), end=_MESSAGE, kind_of=_kind_of),
    is_ended_by_calls=True,
)
