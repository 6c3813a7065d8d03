"""Several calls in one section: up to its end, or to what is no call."""

import pytest

from frontend.parsers.base import CallBegun, Reading
from frontend.parsers.call_runs import run_of_calls
from frontend.parsers.source import Source
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read, Step


def name(source: Source) -> Reading[None]:
    """A call that is a name and a semicolon."""
    yield CallBegun((yield from source.until(";")).text)


def section(opener: str) -> Step:
    """Calls behind `<c>`, in a section behind this opener."""

    def read(source: Source) -> Reading[None]:
        source.opener = opener
        return run_of_calls(source, "<c>", "</s>", name)

    return read


@pytest.mark.parametrize(
    ("opener", "text", "names", "rest"),
    [
        ("<s>", "<c>a;<c>b;</s>x", ["a", "b"], "x"),
        ("<s>", " <c>a;\n<c>b;\n</s> x", ["a", "b"], " x"),
        ("<s>", "<c>a;", ["a"], ""),
        ("<s>", "<c>a; <d>", ["a"], "<d>"),
        ("<c>", "a;<c>b;</s>", ["a", "b"], ""),
    ],
)
def test_calls_are_read_alike_at_every_split(opener: str, text: str, names: list[str], rest: str) -> None:
    """With and without the section's own marks."""
    read = [Read(section(opener), pieces) for pieces in splits(text)]
    assert {(tuple(names), rest, False)} == {
        (tuple(event.name for event in one.events if isinstance(event, CallBegun)), one.rest, one.is_malformed)
        for one in read
    }


@pytest.mark.parametrize("text", ["", "</s>", "x", "<c"])
def test_a_section_without_a_call_is_malformed(text: str) -> None:
    """So that it comes back as it was written."""
    assert {Read(section("<s>"), pieces).is_malformed for pieces in splits(text)} == {True}
