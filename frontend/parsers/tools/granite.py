"""Granite 3's and Phi 4's calls: a tag and a list of JSON objects."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.json_lists import call_objects
from frontend.parsers.source import Source
from frontend.tool_grammar import ToolCallFormat

_BEGIN: Final = "<|tool_call|>"
_END: Final = "<|/tool_call|>"


_GRAMMAR: Final = ToolCallFormat(section_begin=f"{_BEGIN}[", begin="", end="", separator=", ", section_end="]")


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from call_objects(source)
    yield from next_mark(source, _END)


GRANITE: Final = ToolFormat(
    name="granite", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,), grammar=_GRAMMAR
)
