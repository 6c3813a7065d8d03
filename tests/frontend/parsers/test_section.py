"""CallSection: what is no call comes back as it was written; a call that was told stays as far as it came."""

import pytest

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, CallEvent, Reading, ToolFormat, Tools
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


FORMAT = ToolFormat(name="test", claims=lambda template: False, read=read, openers=("<calls>",))


def outcome(pieces: list[str]) -> tuple[str, str, bool]:
    """What was told, the text to go on with, and whether it is text as it was written."""
    section = CallSection(FORMAT, "<calls>", TOOLS)
    told: list[CallEvent] = []
    for index, piece in enumerate(pieces):
        news = section.feed(piece)
        told += news.events
        if news.rest is not None:
            return spelled(told), news.rest + "".join(pieces[index + 1 :]), news.is_written
    news = section.finish()
    assert news.rest is not None
    return spelled([*told, *news.events]), news.rest, news.is_written


def spelled(events: list[CallEvent]) -> str:
    """Events in one line."""
    words = {CallBegun: "begun ", CallEnded: "|"}
    return "".join(
        event.text if isinstance(event, ArgumentsText) else words[type(event)] + getattr(event, "name", "")
        for event in events
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now(a) now(bc). more", ("begun nowa|begun nowbc|", " more", False)),
        (". more", ("", " more", False)),
        ("now(a) </ca", ("begun nowa|", "", False)),
        ("</ca", ("", "<calls></ca", True)),
        ("now(a) nuke(b). more", ("begun nowa|", " nuke(b). more", True)),
        ("nuke(a).", ("", "<calls>nuke(a).", True)),
        ("now", ("", "<calls>now", True)),
        ("", ("", "<calls>", True)),
        ("now(ab", ("begun nowab", "", False)),
        ("now(ab?cd). e", ("begun nowab|", "cd). e", False)),
        ("now(a) ", ("begun nowa|", " ", True)),
    ],
)
def test_a_section_ends_alike_at_every_split(text: str, expected: tuple[str, str, bool]) -> None:
    """Whole, with an unknown tool, cut before and within a call, and broken."""
    assert {outcome(pieces) for pieces in splits(text)} == {expected}
