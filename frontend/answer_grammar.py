"""A reply's own constraint as a part of a larger grammar: behind what the model may think, or beside calls.

Owns how each kind of constraint is written in Lark; calls are tool_grammar's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from frontend.dialects.base import Constraint
from frontend.errors import RequestError
from frontend.lark import Lark
from frontend.thought_grammar import Thought, thought_rule
from protocol.errors import ErrorCode
from protocol.messages import Grammar


def answer_grammar(constraint: Constraint, thought: Thought, tokens: Mapping[str, int]) -> Constraint:
    """The constraint behind a thought. tokens: as of CallSetting. Raises RequestError for one that stands alone."""
    lark = Lark(tokens)
    before = thought_rule(lark, thought)
    lark.rule("start", f"{before} {answer_rule(lark, constraint)}")
    return Constraint(constraint.field, Grammar(kind="lark", text=lark.text()))


def answer_rule(lark: Lark, constraint: Constraint) -> str:
    """Adds the rule of an answer that fits; an expression for it. Raises RequestError for one that stands alone."""
    grammar = constraint.grammar
    match grammar.kind:
        case "json_object":
            lark.json("answer", {"type": "object"}, is_compact=True)
        case "json_schema":
            lark.json("answer", _schema(grammar.text), is_compact=True)
        case "choice":
            choices = msgspec.json.decode(grammar.text, type=list[str])
            lark.rule("answer", " | ".join(lark.literal(choice) for choice in choices))
        case "regex":
            lark.rule("ANSWER", f"/{_inside_slashes(grammar.text)}/")
            return "ANSWER"
        case "lark" | "gbnf":
            raise RequestError(
                ErrorCode.UNSUPPORTED,
                f"`{constraint.field}` holds a grammar of its own, which has no place for calls or a thought: leave "
                "tools out, and switch thinking off",
                constraint.field,
            )
    return "answer"


def _schema(text: str) -> Mapping[str, Any]:
    """True, or false, has no keywords to add to; what it allows is the engine's to say where it stands alone."""
    found = msgspec.json.decode(text)
    if isinstance(found, bool):
        return {} if found else {"enum": []}
    return found


def _inside_slashes(regex: str) -> str:
    return regex.replace("\\/", "/").replace("/", "\\/").replace("\n", "\\n")
