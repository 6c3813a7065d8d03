"""Olmo 3's calls: lines of Python between two tags."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.python_calls import lines_of_calls
from frontend.parsers.source import Source

_BEGIN: Final = "<function_calls>"
_END: Final = "</function_calls>"


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from lines_of_calls(source)
    yield from next_mark(source, _END)


OLMO3: Final = ToolFormat(name="olmo3", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
