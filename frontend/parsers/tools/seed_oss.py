"""Seed-OSS's calls: `<function=…>` with a `<parameter=…>` for each argument, values as they are."""

from typing import Final

from frontend.parsers.tagged_calls import CallTags, tagged_format
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat

_TAGS: Final = CallTags(
    call="<function=",
    call_end="</function>",
    argument="<parameter=",
    argument_end="</parameter>",
    trim="nothing",
)
_GRAMMAR: Final = ToolCallFormat(
    begin="<seed:tool_call>\n<function=",
    name_neck=">\n",
    tags=ArgumentTags("<parameter=", ">", "</parameter>\n"),
    end="</function>\n</seed:tool_call>",
)
SEED_OSS: Final = tagged_format("seed_oss", "<seed:tool_call>", "</seed:tool_call>", _TAGS, _GRAMMAR)
