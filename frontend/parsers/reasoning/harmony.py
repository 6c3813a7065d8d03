"""gpt-oss's channels: analysis is reasoning, final is the answer, and so is commentary to nobody."""

from typing import Final

from frontend.parsers.base import ReasoningFormat

_ANALYSIS: Final = "<|channel|>analysis<|message|>"
_NEXT: Final = "<|start|>assistant"
_ANSWERS: Final = tuple(
    f"<|channel|>{channel}{content}<|message|>"
    for channel in ("final", "commentary")
    for content in ("", " json", " <|constrain|>json", "<|constrain|>json")
)
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")


def _claims(template: str) -> bool:
    return "<|channel|>analysis<|message|>" in template


HARMONY: Final = ReasoningFormat(
    name="harmony",
    claims=_claims,
    begins=(_ANALYSIS,),
    ends=(*_ENDS, _NEXT, *_ANSWERS),
    dropped=(*_ENDS, _NEXT, *_ANSWERS),
    is_ended_by_calls=True,
)
