"""Command R7B's and A's calls: a list of JSON objects between two special tokens, with names of their own."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.json_lists import call_objects
from frontend.parsers.source import Source

_BEGIN: Final = "<|START_ACTION|>"
_END: Final = "<|END_ACTION|>"


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from call_objects(source, ("tool_name", "name"), ("parameters", "arguments"))
    yield from next_mark(source, _END)


COHERE_COMMAND: Final = ToolFormat(name="cohere_command", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,))
