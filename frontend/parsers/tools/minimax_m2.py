"""MiniMax M2's calls: `<invoke name="…">` with a `<parameter name="…">` for each argument."""

from typing import Final

from frontend.parsers.tagged_calls import CallTags, tagged_format
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat

_TAGS: Final = CallTags(
    call="<invoke name=",
    call_end="</invoke>",
    argument="<parameter name=",
    argument_end="</parameter>",
    trim="nothing",
)
_GRAMMAR: Final = ToolCallFormat(
    section_begin="<minimax:tool_call>\n",
    begin='<invoke name="',
    name_neck='">\n',
    tags=ArgumentTags('<parameter name="', '">', "</parameter>\n"),
    end="</invoke>\n",
    separator="",
    section_end="</minimax:tool_call>",
)
MINIMAX_M2: Final = tagged_format("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>", _TAGS, _GRAMMAR)
