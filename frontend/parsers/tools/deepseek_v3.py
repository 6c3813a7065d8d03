"""DeepSeek V3's and R1's calls: type, name and a code block of JSON."""

from typing import Final

from frontend.parsers.base import ToolFormat
from frontend.parsers.deepseek_calls import CODE, MARKS, OPENERS, SEPARATOR, V3_GRAMMAR, read_section


def _claims(template: str) -> bool:
    return SEPARATOR in template and CODE in template


DEEPSEEK_V3: Final = ToolFormat(
    name="deepseek_v3", claims=_claims, read=read_section, openers=OPENERS, marks=MARKS, grammar=V3_GRAMMAR
)
