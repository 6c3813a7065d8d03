"""The work that a text takes grows with its length and no faster, whatever a model repeats without end.

Counted, not timed: the characters of all texts that the frontend's functions hold, and give, when they return.
"""

import sys
from types import FrameType
from typing import Final

import pytest

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.parsers.source import MalformedError, Source
from frontend.text.structure import PLAIN_TEXT, ReplyForm, ReplyStructure
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.generated_calls import Call, form_of, templates, written

CHARACTERS: Final = 1_600
PIECE: Final = 4
# Of twice the text; four times the work would be each character held against all before it.
MOST: Final = 2.6


def handled(form: ReplyForm, text: str, stops: tuple[str, ...] = ()) -> int:
    """Characters in the hands of functions, from the first piece of the text to its end."""
    total = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal total
        if event == "return" and "/frontend/" in frame.f_code.co_filename:
            total += sum(len(value) for value in (*frame.f_locals.values(), arg) if isinstance(value, str))

    structure = ReplyStructure(form, stops, include_stop=False)
    sys.setprofile(note)
    try:
        for at in range(0, len(text), PIECE):
            structure.feed(text[at : at + PIECE])
        structure.finish()
    finally:
        sys.setprofile(None)
    return total


def growth(form: ReplyForm, once: str, twice: str, stops: tuple[str, ...] = ()) -> float:
    return handled(form, twice, stops) / handled(form, once, stops)


def looking(name: str) -> ReplyForm:
    return ReplyForm(call_format=TOOL_FORMATS[name], tools=TOOLS, reasoning=REASONING_FORMATS.get(name))


def test_the_count_sees_text_that_is_read_again_and_again() -> None:
    """A section that waits for its end by looking at all it has is far over the bound."""

    def read(source: Source, tools: Tools) -> Reading[None]:
        while "</call>" not in source.unread:
            yield from source.peek(len(source.unread) + 1)
            if source.is_ended:
                raise MalformedError

    forgetful = ToolFormat(name="forgetful", claims=lambda template: False, read=read, openers=("<call>",))
    form = ReplyForm(call_format=forgetful, tools=TOOLS)
    assert growth(form, "<call>" + "a" * CHARACTERS, "<call>" + "a" * (2 * CHARACTERS)) > MOST


@pytest.mark.parametrize("filler", ["word ", " ", "\n", "a", "The convoy", "<", "<|"])
@pytest.mark.parametrize("before", ["", "<think>", "<think>\nso ", "x "])
def test_text_and_reasoning(filler: str, before: str) -> None:
    """Also white space, which may stand before a marker, and what begins one."""
    form = ReplyForm(call_format=TOOL_FORMATS["hermes"], tools=TOOLS, reasoning=REASONING_FORMATS["think"])
    once, twice = (before + filler * (length // len(filler)) for length in (CHARACTERS, 2 * CHARACTERS))
    assert growth(form, once, twice, ("The convoy halts", "\n\n\nUser:")) < MOST


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
@pytest.mark.parametrize("kind", ["string", "array", "text for an array"])
def test_one_long_argument(name: str, kind: str) -> None:
    """Streamed as it comes, or typed at its end."""
    template = templates()[name]

    def of(length: int) -> str:
        if kind == "string":
            call = Call("write-file", {"content": "\n".join(['  print("x")'] * (length // 13))})
        elif kind == "array":
            call = Call("everything", {"names": list(range(length // 6))})
        else:
            call = Call("everything", {"names": "a 'b' " * (length // 6)})
        return written(template, [call])

    assert growth(form_of(template), of(CHARACTERS), of(2 * CHARACTERS)) < MOST


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_a_call_that_never_begins(name: str) -> None:
    """Behind its opener; where it is none, it is read again from its second character on."""
    call_format = TOOL_FORMATS[name]
    for opener in (*call_format.openers, *call_format.start_openers):
        for filler in ("a", " ", '"', '{"arguments": {"a": "'):
            once, twice = (opener + filler * (length // len(filler)) for length in (CHARACTERS, 2 * CHARACTERS))
            assert growth(looking(name), once, twice) < MOST, (opener, filler)


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_openers_without_end(name: str) -> None:
    """Each could begin a call, and none does."""
    call_format = TOOL_FORMATS[name]
    for opener in (*call_format.openers, *call_format.start_openers):
        for unit in (opener, opener + "x"):
            once, twice = (unit * (length // len(unit)) for length in (CHARACTERS, 2 * CHARACTERS))
            assert growth(looking(name), once, twice) < MOST, unit


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_an_argument_that_never_ends(name: str) -> None:
    """From its first character on: a number without end, quotes that may close it, white space."""
    template = templates()[name]
    whole = written(template, [Call("everything", {"text": "Oslo", "count": 5})])
    for value, filler in (("Oslo", " "), ("Oslo", '" '), ("Oslo", "', a"), ("5", "1"), ("5", " ")):
        before = whole[: whole.rindex(value) + 1]
        once, twice = (before + filler * (length // len(filler)) for length in (CHARACTERS, 2 * CHARACTERS))
        assert growth(form_of(template), once, twice) < MOST, (value, filler)


def test_openers_in_what_a_section_gives_back() -> None:
    """A call that turns out to be none at its end, in which many more seem to begin."""
    once, twice = ('<tool_call>{"' + "<tool_call>" * (length // 11) + '": 1} x' for length in (4_000, 8_000))
    assert growth(looking("hermes"), once, twice) < MOST


def test_a_form_without_anything() -> None:
    """The base: a text that is only text."""
    once, twice = "word " * (CHARACTERS // 5), "word " * (2 * CHARACTERS // 5)
    assert growth(PLAIN_TEXT, once, twice) == pytest.approx(2, abs=0.1)
