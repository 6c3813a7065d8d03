"""Hermes' calls, also those of Qwen 2.5, Qwen 3 and SmolLM 3: a JSON object between two tags."""

from typing import Final

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.json_calls import call_object
from frontend.parsers.source import Source
from frontend.tool_grammar import HERMES as HERMES_GRAMMAR

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"


def _claims(template: str) -> bool:
    """The tag, and JSON's key for the name; Qwen 3 Coder's and GLM's calls have the tag but no JSON."""
    has_json = '"name"' in template or '\\"name\\"' in template
    return _BEGIN in template and has_json and "<function=" not in template and "<arg_key>" not in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    yield from call_object(source)
    # Small models close one brace too many.
    while (yield from source.skip_space()) == "}":
        source.skip(1)
    yield from source.accept(_END)


HERMES: Final = ToolFormat(
    name="hermes", claims=_claims, read=_read, openers=(_BEGIN,), marks=(_END,), grammar=HERMES_GRAMMAR
)
