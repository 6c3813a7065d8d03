"""Phi 4 mini's calls: a list of JSON objects behind a word, or between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.json_lists import call_objects
from frontend.parsers.source import Source

_BEGIN: Final = "<|tool_call|>"
_END: Final = "<|/tool_call|>"
_WORD: Final = "functools["


def _claims(template: str) -> bool:
    return _WORD in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from call_objects(source)
    yield from source.accept(_END)


PHI4_MINI: Final = ToolFormat(name="phi4_mini", claims=_claims, read=_read, openers=(_BEGIN, _WORD), marks=(_END,))
