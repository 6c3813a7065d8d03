"""Mistral's calls: `[TOOL_CALLS]` and a list of JSON objects, or, since 2025, `[TOOL_CALLS]name[ARGS]{…}` for each."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.json_calls import streamed_call
from frontend.parsers.json_lists import call_objects
from frontend.parsers.source import MalformedError, Source

_BEGIN: Final = "[TOOL_CALLS]"
_ARGS: Final = "[ARGS]"
_ID: Final = "[CALL_ID]"


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    has_more = True
    while has_more:
        if (yield from source.skip_space()) == "[":
            yield from call_objects(source)
        else:
            yield from _named_call(source, tools)
        yield from source.skip_space()
        has_more = (yield from source.accept(_BEGIN)) is not None


def _named_call(source: Source, tools: Tools) -> Reading[None]:
    taken = yield from source.name_until(_ARGS, _ID, "{")
    name = taken.text.strip()
    if name not in tools:
        raise MalformedError
    if taken.marker == _ID:
        taken = yield from source.name_until(_ARGS, "{")
    if taken.marker == "{":
        # A model without the mark begins its arguments at once; they are read with their brace.
        source.skip(-1)
    yield from streamed_call(source, name)


MISTRAL: Final = ToolFormat(
    name="mistral", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_ARGS, _ID), has_short_ids=True
)
