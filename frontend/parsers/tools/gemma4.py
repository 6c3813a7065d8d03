"""Gemma 4's calls: `call:name{key:value}` between two special tokens, another one around strings."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.gemma_calls import gemma_call
from frontend.parsers.source import Source

_BEGIN: Final = "<|tool_call>"
_END: Final = "<tool_call|>"
_QUOTE: Final = '<|"|>'


def _claims(template: str) -> bool:
    return _BEGIN in template and _END in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    while True:
        yield from gemma_call(source, _QUOTE)
        # More calls may stand in one section.
        if (yield from source.skip_space()) != "c":
            break
    yield from source.accept(_END)


GEMMA4: Final = ToolFormat(name="gemma4", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END, _QUOTE))
