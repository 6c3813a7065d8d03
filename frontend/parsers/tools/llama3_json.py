"""Llama 3.1's and 3.2's calls: a reply that is a JSON object with `name` and `parameters`, tagged or not."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.json_calls import call_object, has_first_key
from frontend.parsers.source import MalformedError, Source
from frontend.tool_grammar import ToolCallFormat

_TAG: Final = "<|python_tag|>"
_MARKS: Final = ("<|eom_id|>", "<|eot_id|>")
# A reply may be JSON and no call: what begins otherwise is told at once.
_FIRST_KEYS: Final = ("name", "type", "function", "parameters", "arguments", "id")


_GRAMMAR: Final = ToolCallFormat(begin="", end="", separator="; ", arguments_key="parameters", has_free_text=False)


def _claims(template: str) -> bool:
    return '"parameters": dictionary of argument name' in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    """Several calls stand behind each other, with a semicolon, a comma or the tag between them, or nothing."""
    has_more = True
    while has_more:
        yield from source.skip_space()
        if not (yield from has_first_key(source, _FIRST_KEYS)):
            raise MalformedError
        yield from call_object(source)
        yield from source.skip_space()
        yield from source.accept(";", ",", _TAG)
        has_more = (yield from source.skip_space()) == "{"


LLAMA3_JSON: Final = ToolFormat(
    name="llama3_json",
    claims=_claims,
    read=_read,
    openers=(_TAG,),
    start_openers=("{",),
    marks=_MARKS,
    grammar=_GRAMMAR,
)
