"""Calls as a Python list, `[name(key=value), …]`, which Llama's templates ask for; with or without Llama 4's tags."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.python_calls import listed_calls
from frontend.parsers.source import Source

_BEGIN: Final = "<|python_start|>"
_END: Final = "<|python_end|>"


def _claims(template: str) -> bool:
    return "[func_name1(" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from source.skip_space()
    yield from source.expect("[")
    yield from listed_calls(source)
    yield from source.accept(_END)


PYTHONIC: Final = ToolFormat(
    name="pythonic", claims=_claims, read=_read, openers=(_BEGIN,), start_openers=("[",), marks=(_END,)
)
