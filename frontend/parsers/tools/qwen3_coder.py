"""Calls of Qwen 3 Coder, Qwen 3.5 and Nemotron 3: `<function=…>` with a `<parameter=…>` for each argument."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.source import Source
from frontend.parsers.tagged_calls import CallTags, tagged_call, tagged_section
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"
_TAGS: Final = CallTags(
    call="<function=",
    call_end="</function>",
    argument="<parameter=",
    argument_end="</parameter>",
    trim="line",
    is_lax=True,
)


def _claims(template: str) -> bool:
    return _TAGS.call in template and _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    if source.opener == _BEGIN:
        yield from tagged_section(source, tools, _TAGS, _END)
        return
    # The model often forgets the outer tag before a call, and writes the one behind it.
    yield from tagged_call(source, tools, _TAGS)
    if (yield from source.skip_space()) == "<":
        yield from source.accept(_END)


QWEN3_CODER: Final = ToolFormat(
    name="qwen3_coder",
    claims=_claims,
    read=_read,
    openers=(_BEGIN, _TAGS.call),
    marks=(_END, *_TAGS.marks),
    grammar=ToolCallFormat(
        begin="<tool_call>\n<function=",
        name_neck=">\n",
        tags=ArgumentTags("<parameter=", ">\n", "\n</parameter>\n"),
        end="</function>\n</tool_call>",
    ),
)
