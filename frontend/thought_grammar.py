"""Reasoning that may come before what a grammar holds a reply to: free text up to its end."""

from dataclasses import dataclass

from frontend.lark import Lark


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning that may come first, and its marks. is_open: the prompt has opened it, so it must end."""

    begin: str
    end: str
    is_open: bool = False


def thought_rule(lark: Lark, thought: Thought | None) -> str:
    """Adds its rule; an expression for it, with the white space behind it, and the begin unless the prompt wrote it."""
    if thought is None:
        return ""
    lark.rule("thought", f"{lark.text_through(thought.end)} SPACE")
    return "thought" if thought.is_open else f"({lark.literal(thought.begin)} thought)?"
