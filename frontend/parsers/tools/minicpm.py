"""MiniCPM 3's and 4's calls: lines of Python in a code block, between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.python_calls import python_call
from frontend.parsers.source import MalformedError, Source

_BEGIN: Final = "<|tool_call_start|>"
_END: Final = "<|tool_call_end|>"
_CODE: Final = "```"


def _claims(template: str) -> bool:
    return f"{_BEGIN}\n{_CODE}python" in template or f"{_BEGIN}\\n{_CODE}python" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from source.skip_space()
    if (yield from source.accept(_CODE)) is not None:
        yield from source.accept("python")
    count = 0
    while (yield from source.skip_space()) not in ("", "`", "<"):
        yield from python_call(source)
        count += 1
        yield from source.accept(",", ";")
    if count == 0:
        raise MalformedError
    yield from source.accept(_CODE)
    yield from source.skip_space()
    yield from source.accept(_END)


MINICPM: Final = ToolFormat(name="minicpm", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
