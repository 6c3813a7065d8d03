"""DeepSeek V3.2's and V4's calls: DSML tags that say of each argument whether it is a string."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.source import Source
from frontend.parsers.tagged_calls import CallTags, tagged_section
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat

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


_GRAMMAR: Final = ToolCallFormat(
    section_begin=f"{_BEGIN}\n",
    begin='<｜DSML｜invoke name="',
    name_neck='">\n',
    tags=ArgumentTags(
        '<｜DSML｜parameter name="', '" string="true">', "</｜DSML｜parameter>\n", other_neck='" string="false">'
    ),
    end="</｜DSML｜invoke>\n",
    separator="",
    section_end=_ENDS[_BEGIN],
)


def _claims(template: str) -> bool:
    return "｜DSML｜" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from tagged_section(source, tools, _TAGS, _ENDS[source.opener])


DEEPSEEK_V32: Final = ToolFormat(
    name="deepseek_v32",
    claims=_claims,
    read=_read,
    openers=tuple(_ENDS),
    marks=(*_ENDS.values(), *_TAGS.marks),
    grammar=_GRAMMAR,
)
