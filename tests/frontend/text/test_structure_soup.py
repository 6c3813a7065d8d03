"""Text made by chance of a format's own marks: whatever a model writes, every split reads alike, and nothing fails."""

import random

import pytest

from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.text.structure import ReplyForm
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import told

_WORDS = (
    *("weather", "now", "write_file", "search", "nuke", "city", "Oslo", "content", "5", "null", "true", "漢", "json"),
    *('"', "'", "{", "}", "[", "]", "(", ")", ":", ",", ";", "=", "<", ">", "\\", "\n", " ", "```", "</", "<|", "[a("),
    *('{"name": "', '", "arguments": {', "}}", '{"name": "now", "arguments": {}}', '{"city": "Oslo"}', "now()"),
    'weather(city="Oslo")',
)


def soup(chance: random.Random, marks: list[str]) -> str:
    """A text that is half marks, some of them cut."""
    parts: list[str] = []
    for _ in range(chance.randint(1, 25)):
        part = chance.choice(marks) if chance.random() < 0.5 else chance.choice(_WORDS)
        parts.append(part[: chance.randint(1, len(part))] if chance.random() < 0.15 else part)
    return "".join(parts)


def cut(chance: random.Random, text: str) -> list[str]:
    """The text in pieces of one to five characters."""
    pieces: list[str] = []
    while text:
        size = chance.randint(1, 5)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


FORMS = [
    *[
        pytest.param(ReplyForm(call_format=one, tools=TOOLS, reasoning=REASONING_FORMATS.get(name)), id=name)
        for name, one in TOOL_FORMATS.items()
    ],
    *[
        pytest.param(ReplyForm(call_format=TOOL_FORMATS["hermes"], tools=TOOLS, reasoning=one), id=f"reasoning-{name}")
        for name, one in REASONING_FORMATS.items()
    ],
]


def marks_of(form: ReplyForm) -> list[str]:
    """All that the form looks for."""
    call_format, reasoning = form.call_format, form.reasoning
    assert call_format is not None
    marks = [*call_format.openers, *call_format.start_openers, *call_format.marks]
    if reasoning is not None:
        marks += reasoning.marks
    return [mark for mark in marks if mark]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stops", [(), ("Oslo", "}\n")])
def test_any_text_is_read_alike_at_any_split(form: ReplyForm, stops: tuple[str, ...]) -> None:
    """Calls never overlap, and what was told is told once."""
    chance = random.Random(7)
    marks = marks_of(form)
    for is_cut in [True, False] * 60:
        text = soup(chance, marks)
        whole = told(form, [text], stops, is_cut=is_cut)
        assert told(form, cut(chance, text), stops, is_cut=is_cut) == whole, text
        is_in_call = False
        for kind, _ in whole:
            assert (kind in ("arguments", "end", "broken")) <= is_in_call, text
            is_in_call = kind in ("call", "arguments") or (is_in_call and kind not in ("end", "broken"))
