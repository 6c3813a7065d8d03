"""Source: each step gives the same wherever the text is cut, and waits for no more than it needs."""

import pytest

from frontend.parsers.source import MAX_NAME_CHARACTERS, Source, Taken
from tests.frontend.parsers.golden_cases import splits
from tests.frontend.parsers.reading import Read, Step

CASES: dict[str, tuple[Step, str, object, str]] = {
    "peek": (lambda source: source.peek(3), "abcd", "abc", "abcd"),
    "peek at the end": (lambda source: source.peek(9), "ab", "ab", "ab"),
    "space": (lambda source: source.skip_space(), " \n\t x ", "x", "x "),
    "space to the end": (lambda source: source.skip_space(), "  ", "", ""),
    "accept": (lambda source: source.accept("ab", "abc"), "abcd", "abc", "d"),
    "accept the shorter": (lambda source: source.accept("ab", "abc"), "abd", "ab", "d"),
    "accept none": (lambda source: source.accept("abc"), "abd", None, "abd"),
    "accept at the end": (lambda source: source.accept("abc"), "ab", None, "ab"),
    "until": (lambda source: source.until("</a>", "<b>"), "x < y </b <b></a>", Taken("x < y </b ", "<b>"), "</a>"),
    "until the longer of two ends": (lambda source: source.until("b", "ab"), "xaby", Taken("x", "ab"), "y"),
    "until what ends first": (lambda source: source.until("abcd", "c"), "xabcd", Taken("xab", "c"), "d"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_the_same_at_every_split(name: str) -> None:
    """Its result, and what it leaves unread."""
    step, text, result, rest = CASES[name]
    read = [Read(step, pieces) for pieces in splits(text)]
    assert {(one.result, one.rest, one.is_malformed) for one in read} == {(result, rest, False)}


@pytest.mark.parametrize("text", ["", "x", "x<", "x</"])
def test_until_a_marker_that_never_comes_is_malformed(text: str) -> None:
    """A format that needs its end tag says so by waiting for it."""
    assert all(Read(lambda source: source.until("</a>"), pieces).is_malformed for pieces in splits(text))


@pytest.mark.parametrize("text", ["", "a", "ac"])
def test_what_is_expected_and_does_not_come_is_malformed(text: str) -> None:
    """Also at the end of the text."""
    assert all(Read(lambda source: source.expect("ab"), pieces).is_malformed for pieces in splits(text))


@pytest.mark.parametrize("has_end", [True, False])
def test_a_name_is_bounded(has_end: bool) -> None:
    """A longer one is none, and as soon as it is too long; at every split."""
    for length in (MAX_NAME_CHARACTERS, MAX_NAME_CHARACTERS + 1):
        text = "n" * length + (">" if has_end else "")
        is_name = has_end and length == MAX_NAME_CHARACTERS
        for pieces in ([text], list(text), *([text[:cut], text[cut:]] for cut in range(1, len(text), 7))):
            read = Read(lambda source: source.name_until(">"), pieces)
            assert read.is_malformed == (not is_name)
            assert read.result == (Taken("n" * length, ">") if is_name else None)


def test_pieces_leave_as_soon_as_no_marker_can_claim_them() -> None:
    """Only what may be the marker's beginning is held."""
    source = Source()
    told: list[Taken] = []
    for piece in ["ab<", "/", "c</d>"]:
        source.put(piece)
        steps = source.piece_until("</d>")
        while True:
            try:
                next(steps)
                break
            except StopIteration as stop:
                told.append(stop.value)
                steps = source.piece_until("</d>")
                if stop.value.marker:
                    break
    assert told == [Taken("ab", None), Taken("</c", "</d>")]


def test_written_is_what_was_read_since_the_mark() -> None:
    """However it came."""
    source = Source()
    for piece in ["ab", "c", "de"]:
        source.put(piece)
        source.skip(2 if piece == "ab" else 1)
        if piece == "ab":
            source.mark()
    assert (source.written, source.unread) == ("cd", "e")
