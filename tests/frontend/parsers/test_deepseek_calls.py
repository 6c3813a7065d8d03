"""DeepSeek's calls: with a type and a code block, or without, in sections that are whole or not."""

import pytest

from frontend.parsers.base import ArgumentsText, CallBegun, Reading
from frontend.parsers.deepseek_calls import CALL, CALL_END, SECTION, SECTION_END, SEPARATOR, read_section
from frontend.parsers.source import Source
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read, Step

ARGUMENTS = '{"city": "`Oslo`"}'
V3 = f"function{SEPARATOR}weather\n```json\n{ARGUMENTS}\n```"
V31 = f"weather{SEPARATOR}{ARGUMENTS}"


def reader(opener: str) -> Step:
    """A section behind this opener."""

    def read(source: Source) -> Reading[None]:
        source.opener = opener
        return read_section(source, TOOLS)

    return read


@pytest.mark.parametrize("written", [V3, V31, V3.replace("\n", "\n\n"), V31.replace("{", " {")])
@pytest.mark.parametrize("end", [CALL_END + SECTION_END, CALL_END, "\n" + CALL_END + "\n" + SECTION_END, ""])
def test_a_call_is_read_alike_at_every_split(written: str, end: str) -> None:
    """Whatever marks are forgotten behind it."""
    for opener, begin in ((SECTION, CALL), (CALL, "")):
        for pieces in splits(begin + written + end):
            read = Read(reader(opener), pieces)
            told = [event.text for event in read.events if isinstance(event, ArgumentsText)]
            names = [event.name for event in read.events if isinstance(event, CallBegun)]
            assert (names, "".join(told), read.rest, read.is_malformed) == (["weather"], ARGUMENTS, "", False)


@pytest.mark.parametrize("text", ["", SECTION_END, "Hello", f"{CALL}weather", f"{CALL}weather{SEPARATOR}Oslo"])
def test_a_section_without_a_call_is_malformed(text: str) -> None:
    """It comes back as it was written."""
    assert {Read(reader(SECTION), pieces).is_malformed for pieces in splits(text)} == {True}
