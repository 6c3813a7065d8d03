"""DeepSeek V3.2's and V4's calls: DSML tags that say of each argument whether it is a string."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.source import Source
from frontend.parsers.tagged_calls import CallTags, tagged_section

_BEGIN: Final = "<｜DSML｜function_calls>"
_V4_BEGIN: Final = "<｜DSML｜tool_calls>"
_ENDS: Final = {_BEGIN: "</｜DSML｜function_calls>", _V4_BEGIN: "</｜DSML｜tool_calls>"}
_TAGS: Final = CallTags(
    call="<｜DSML｜invoke name=",
    call_end="</｜DSML｜invoke>",
    argument="<｜DSML｜parameter name=",
    argument_end="</｜DSML｜parameter>",
    trim="nothing",
)


def _claims(template: str) -> bool:
    return "｜DSML｜" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from tagged_section(source, tools, _TAGS, _ENDS[source.opener])


DEEPSEEK_V32: Final = ToolFormat(
    name="deepseek_v32", claims=_claims, read=_read, openers=tuple(_ENDS), marks=(*_ENDS.values(), *_TAGS.marks)
)
