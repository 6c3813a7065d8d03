"""Apertus' calls: a list of JSON objects, each a name and its arguments, between two special tokens."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.json_calls import json_string, streamed_call
from frontend.parsers.source import Source

_BEGIN: Final = "<|tools_prefix|>"
_END: Final = "<|tools_suffix|>"


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from next_mark(source, "[")
    while True:
        yield from _call(source)
        if (yield from next_mark(source, ",")) is None:
            break
    yield from next_mark(source, "]")
    yield from next_mark(source, _END)


def _call(source: Source) -> Reading[None]:
    yield from source.skip_space()
    yield from source.expect("{")
    yield from source.skip_space()
    name = yield from json_string(source)
    yield from source.skip_space()
    yield from source.expect(":")
    yield from streamed_call(source, name)
    yield from next_mark(source, "}")


APERTUS: Final = ToolFormat(name="apertus", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
