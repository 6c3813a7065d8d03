"""FunctionGemma's calls: `call:name{key:value}` between two special tokens, another one around strings."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.gemma_calls import gemma_call
from frontend.parsers.source import Source

_BEGIN: Final = "<start_function_call>"
_END: Final = "<end_function_call>"
_QUOTE: Final = "<escape>"
# Where the model waits for what its calls return.
_RESPONSE: Final = "<start_function_response>"


def _claims(template: str) -> bool:
    return _BEGIN in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from gemma_call(source, _QUOTE)
    yield from source.skip_space()
    yield from source.accept(_END)
    yield from source.skip_space()
    yield from source.accept(_RESPONSE)


FUNCTION_GEMMA: Final = ToolFormat(
    name="function_gemma", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END, _QUOTE, _RESPONSE)
)
