"""The wire's Grammar as llguidance's grammar text, by kind. Compiles nothing, so most errors are found later."""

from typing import Final, assert_never

import msgspec
from llguidance import LLMatcher

from engine.errors import EngineError
from engine.sampling.gbnf import gbnf_to_lark
from protocol.errors import ErrorCode
from protocol.messages import Grammar

MAX_TEXT_BYTES: Final = 256 * 1024
_ANY_OBJECT: Final = '{"type":"object"}'
# The schema `true`, which llguidance takes inside a schema only.
_ANYTHING: Final = "{}"


def llguidance_text(grammar: Grammar) -> str:
    """What LLMatcher takes. Raises EngineError(INVALID_REQUEST) with the param `grammar`."""
    length_bytes = len(grammar.text.encode())
    if length_bytes > MAX_TEXT_BYTES:
        raise refused(f"the grammar has {length_bytes} bytes, at most {MAX_TEXT_BYTES} are taken")
    match grammar.kind:
        case "json_object":
            return _of_schema(_ANY_OBJECT)
        case "json_schema":
            return _of_schema(grammar.text)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "choice":
            return LLMatcher.grammar_from_lark(_choice_to_lark(grammar.text))
        case "lark":
            return LLMatcher.grammar_from_lark(grammar.text)
        case "gbnf":
            return LLMatcher.grammar_from_lark(gbnf_to_lark(grammar.text))
        case _:
            assert_never(grammar.kind)


def refused(message: str) -> EngineError:
    """The error of a grammar that cannot be used."""
    return EngineError(ErrorCode.INVALID_REQUEST, message, param="grammar")


def _of_schema(text: str) -> str:
    """Compact: a model that is free to write white space may write nothing else. No keyword is passed over."""
    text = _ANYTHING if text.strip() == "true" else text
    try:
        return LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False, "lenient": False})
    except ValueError as error:
        raise refused(f"the JSON schema cannot be read: {error}") from error


def _choice_to_lark(text: str) -> str:
    try:
        choices = msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError as error:
        raise refused(f"the choices are no JSON array of strings: {error}") from error
    if not choices:
        raise refused("there is nothing to choose from: the array of choices is empty")
    return "start: " + " | ".join(msgspec.json.encode(choice).decode() for choice in choices)
