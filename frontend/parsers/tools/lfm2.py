"""LFM2's calls: a Python list of them, or JSON if the prompt asks for it, between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.json_lists import call_objects
from frontend.parsers.python_calls import listed_calls, python_call
from frontend.parsers.source import Source

_BEGIN: Final = "<|tool_call_start|>"
_END: Final = "<|tool_call_end|>"


def _claims(template: str) -> bool:
    return "<|tool_list_start|>" in template or f"{_BEGIN}[" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from source.skip_space()
    is_list = (yield from source.accept("[")) is not None
    if (yield from source.skip_space()) == "{":
        yield from call_objects(source)
    elif is_list:
        yield from listed_calls(source)
    else:
        yield from python_call(source)
    yield from next_mark(source, _END)


LFM2: Final = ToolFormat(name="lfm2", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
