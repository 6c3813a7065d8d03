"""Kimi K2's calls: special tokens around `functions.name:0` and JSON."""

import re
from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark, run_of_calls
from frontend.parsers.json_calls import streamed_call
from frontend.parsers.source import MalformedError, Source
from frontend.tool_grammar import ToolCallFormat

_SECTION: Final = "<|tool_calls_section_begin|>"
_SECTION_END: Final = "<|tool_calls_section_end|>"
_CALL: Final = "<|tool_call_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_NAME: Final = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")
# The model reads the ids of earlier calls, and writes those of new ones in their likeness.
_ID: Final = re.compile(r"functions\.[\w.-]{1,100}:\d{1,9}")


def _claims(template: str) -> bool:
    return _SECTION in template or "<|im_system|>tool_declare<|im_middle|>" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    return run_of_calls(source, _CALL, _SECTION_END, lambda source: _call(source, tools))


def _call(source: Source, tools: Tools) -> Reading[None]:
    written = (yield from source.name_until(_ARGUMENTS)).text.strip()
    found = _NAME.fullmatch(written)
    if found is None:
        raise MalformedError
    name = written if written in tools else found[1]
    yield from streamed_call(source, name, written if _ID.fullmatch(written) else None)
    yield from next_mark(source, _CALL_END)


KIMI_K2: Final = ToolFormat(
    name="kimi_k2",
    claims=_claims,
    read=_read,
    openers=(_SECTION, _CALL),
    marks=(_SECTION_END, _CALL_END, _ARGUMENTS),
    grammar=ToolCallFormat(
        section_begin=_SECTION,
        begin=f"{_CALL}functions.",
        is_numbered=True,
        name_neck=_ARGUMENTS,
        end=_CALL_END,
        separator="",
        section_end=_SECTION_END,
    ),
)
