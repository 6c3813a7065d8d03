"""MiniCPM 5's calls: `<function name="…">` with a `<param name="…">` for each argument, perhaps in CDATA."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.source import Source
from frontend.parsers.tagged_calls import CallTags, tagged_call
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat

_TAGS: Final = CallTags(
    call="<function name=",
    call_end="</function>",
    argument="<param name=",
    argument_end="</param>",
    trim="nothing",
    has_cdata=True,
)


_GRAMMAR: Final = ToolCallFormat(
    begin='<function name="',
    name_neck='">',
    tags=ArgumentTags('<param name="', '">', "</param>"),
    end="</function>",
    separator="",
)


def _claims(template: str) -> bool:
    return f'{_TAGS.call}"' in template and f'{_TAGS.argument}"' in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from tagged_call(source, tools, _TAGS)


MINICPM5: Final = ToolFormat(
    name="minicpm5", claims=_claims, read=_read, openers=(_TAGS.call,), marks=_TAGS.marks, grammar=_GRAMMAR
)
