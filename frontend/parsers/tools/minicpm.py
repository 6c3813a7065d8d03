"""MiniCPM 3's and 4's calls: lines of Python in a code block, between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.python_calls import lines_of_calls
from frontend.parsers.source import Source

_BEGIN: Final = "<|tool_call_start|>"
_END: Final = "<|tool_call_end|>"
_CODE: Final = "```"


def _claims(template: str) -> bool:
    return f"{_BEGIN}\n{_CODE}python" in template or f"{_BEGIN}\\n{_CODE}python" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    if (yield from next_mark(source, _CODE)) is not None:
        yield from source.accept("python")
    yield from lines_of_calls(source)
    yield from next_mark(source, _CODE)
    yield from next_mark(source, _END)


MINICPM: Final = ToolFormat(name="minicpm", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
