"""The cases in goldens/parsers: a model's text and the pieces that a reply is made of, for each format.

A file is `{"tools": name or null, "reasoning": name or null, "cases": [{"name", "text", "pieces", …}]}`; a case may say
`"is_open": true` for a prompt that has opened reasoning.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from frontend.dialects.base import Tool
from frontend.parsers.base import ArgumentsText, CallBegun, CallBroken, CallEnded
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.text.structure import Piece, ReasoningPiece, ReplyForm, ReplyStructure, StopFound, TextPiece
from tests.fakes.tools import TOOLS

FOLDER = Path(__file__).parents[3] / "goldens" / "parsers"

# What a piece is called in a golden, and its text.
Told = list[list[str]]
_WORDS = {
    TextPiece: "text",
    ReasoningPiece: "reasoning",
    CallBegun: "call",
    ArgumentsText: "arguments",
    CallEnded: "end",
    CallBroken: "broken",
    StopFound: "stop",
}


class Case(NamedTuple):
    """One text of one format."""

    form: ReplyForm
    text: str
    pieces: Told


def golden_files() -> list[Path]:
    """All files, in order."""
    return sorted(FOLDER.glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """A file as it is."""
    return json.loads(path.read_text(encoding="utf-8"))


def cases(path: Path) -> dict[str, Case]:
    """The cases of one file by name."""
    content = load(path)
    return {
        case["name"]: Case(
            form_of(content, is_open=case.get("is_open", False)),
            case["text"],
            case.get("pieces", []),
        )
        for case in content["cases"]
    }


def form_of(content: dict[str, Any], *, is_open: bool, tools: dict[str, Tool] = TOOLS) -> ReplyForm:
    """The form of replies in a file's formats."""
    tool_name, reasoning_name = content["tools"], content["reasoning"]
    return ReplyForm(
        call_format=None if tool_name is None else TOOL_FORMATS[tool_name],
        tools=tools if tool_name is not None else {},
        reasoning=None if reasoning_name is None else REASONING_FORMATS[reasoning_name],
        is_in_reasoning=is_open,
    )


def told(form: ReplyForm, pieces: list[str], stops: tuple[str, ...] = (), *, is_cut: bool = True) -> Told:
    """What a text that comes in these pieces is made of, and then is cut or ended; neighbours of a kind are joined."""
    structure = ReplyStructure(form, stops, include_stop=False)
    found: Told = []
    for piece in [part for text in pieces for part in structure.feed(text)] + structure.finish(is_cut=is_cut):
        kind, text = spelled(piece)
        if found and found[-1][0] == kind and kind in ("text", "reasoning", "arguments"):
            found[-1][1] += text
        else:
            found.append([kind, text])
    return found


def spelled(piece: Piece) -> tuple[str, str]:
    """A piece's word in goldens."""
    match piece:
        case CallEnded():
            text = ""
        case TextPiece(text) | ReasoningPiece(text) | ArgumentsText(text) | CallBroken(text):
            pass
        case CallBegun(name=text) | StopFound(stop=text):
            pass
    return _WORDS[type(piece)], text


def splits(text: str) -> list[list[str]]:
    """A text at once, character by character, and at every cut in two."""
    return [[text], list(text), *([text[:cut], text[cut:]] for cut in range(1, len(text)))]
