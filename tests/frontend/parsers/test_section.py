"""CallSection: what is no call comes back as it was written, also where a call was told that then broke."""

import pytest

from frontend.parsers.base import ArgumentsText, CallBegun, CallBroken, CallEnded, CallEvent, Reading, ToolFormat, Tools
from frontend.parsers.section import CallSection
from frontend.parsers.source import MalformedError, Source
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import splits


def read(source: Source, tools: Tools) -> Reading[None]:
    """Calls such as `now(abc)`, up to a full stop; a question mark breaks one."""
    while (yield from source.skip_space()) != ".":
        name = (yield from source.until("(")).text
        yield CallBegun(name)
        while True:
            piece = yield from source.piece_until(")", "?")
            yield ArgumentsText(piece.text)
            if piece.marker == "?":
                raise MalformedError
            if piece.marker is not None:
                break
        yield CallEnded()
    source.skip(1)


FORMAT = ToolFormat(name="test", claims=lambda template: False, read=read, openers=("<calls>",), marks=("</calls>",))


def outcome(pieces: list[str], *, is_cut: bool = True) -> tuple[str, str, bool]:
    """What was told, the text to go on with, and whether it is text as it was written."""
    section = CallSection(FORMAT, "<calls>", TOOLS)
    told: list[CallEvent | CallBroken] = []
    for index, piece in enumerate(pieces):
        news = section.feed(piece)
        told += news.events
        if news.rest is not None:
            return spelled(told), news.rest + "".join(pieces[index + 1 :]), news.is_written
    news = section.finish(is_cut=is_cut)
    assert news.rest is not None
    return spelled([*told, *news.events]), news.rest, news.is_written


def spelled(events: list[CallEvent | CallBroken]) -> str:
    """Events in one line."""
    return "".join(map(word, events))


def word(event: CallEvent | CallBroken) -> str:
    """One event."""
    match event:
        case CallBegun(name):
            return f"begun {name} "
        case ArgumentsText(text):
            return text
        case CallEnded():
            return "|"
        case CallBroken(written):
            return f"!{written}!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now(a) now(bc). more", ("begun now a|begun now bc|", " more", False)),
        (". more", ("", " more", False)),
        ("now(a) </ca", ("begun now a|", "", False)),
        ("</ca", ("", "<calls></ca", True)),
        ("now(a) nuke(b). more", ("begun now a|", " nuke(b). more", True)),
        ("nuke(a).", ("", "<calls>nuke(a).", True)),
        ("now", ("", "<calls>now", True)),
        ("", ("", "<calls>", True)),
        ("now(ab", ("begun now ab", "", False)),
        ("now(ab?cd). e", ("begun now ab!<calls>now(ab?!", "cd). e", False)),
        ("now(a) now(b?c). e", ("begun now a|begun now b! now(b?!", "c). e", False)),
        ("now(a) ", ("begun now a|", "", False)),
        ("now(a)\n], {", ("begun now a|", "", False)),
        ("now(a) </calls>", ("begun now a|", " </calls>", True)),
    ],
)
def test_a_section_ends_alike_at_every_split(text: str, expected: tuple[str, str, bool]) -> None:
    """Whole, with an unknown tool, cut before and within a call, and broken."""
    assert {outcome(pieces) for pieces in splits(text)} == {expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now(ab", ("begun now ab!<calls>now(ab!", "", False)),
        ("now(a) now(", ("begun now a|begun now ! now(!", "", False)),
        ("now(a) now", ("begun now a|", " now", True)),
    ],
)
def test_a_call_that_the_model_leaves_is_broken(text: str, expected: tuple[str, str, bool]) -> None:
    """It ended its reply of itself, so the call is not to be waited for."""
    assert {outcome(pieces, is_cut=False) for pieces in splits(text)} == {expected}
