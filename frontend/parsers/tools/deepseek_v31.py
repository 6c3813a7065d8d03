"""DeepSeek V3.1's calls: name and JSON."""

from typing import Final

from frontend.parsers.base import ToolFormat
from frontend.parsers.deepseek_calls import CODE, MARKS, OPENERS, SEPARATOR, V31_GRAMMAR, read_section


def _claims(template: str) -> bool:
    return SEPARATOR in template and CODE not in template


DEEPSEEK_V31: Final = ToolFormat(
    name="deepseek_v31", claims=_claims, read=read_section, openers=OPENERS, marks=MARKS, grammar=V31_GRAMMAR
)
