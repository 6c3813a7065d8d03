"""LFM2's calls: a Python list of them, or JSON if the prompt asks for it, between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.json_calls import call_object
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
        yield from _objects(source, is_list)
    elif is_list:
        yield from listed_calls(source)
    else:
        yield from python_call(source)
    yield from source.skip_space()
    yield from source.accept(_END)


def _objects(source: Source, is_list: bool) -> Reading[None]:
    yield from call_object(source)
    while is_list and (yield from source.skip_space()) == ",":
        source.skip(1)
        yield from call_object(source)
    if is_list:
        yield from source.accept("]")


LFM2: Final = ToolFormat(name="lfm2", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
