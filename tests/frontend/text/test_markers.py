"""MarkerScanner: finds the marker completed first, however the text is cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.text.markers import MarkerFound, MarkerScanner, Scan

LETTERS = st.text(alphabet="ab", max_size=12)


def scan(markers: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    """The text before the first found marker and the marker, or all text and None."""
    scanner = MarkerScanner(markers)
    before = ""
    for piece in pieces:
        result = scanner.feed(piece)
        before += result.before
        if result.found is not None:
            return before, markers[result.found.marker]
    return before + scanner.finish(), None


def first_completed(markers: tuple[str, ...], text: str, passable: int = 0, passed: int = 0) -> tuple[str, str | None]:
    """The same by the plainest rule: the shortest prefix of the text that ends with a marker, the longest of those."""
    for end in range(len(text) + 1):
        counting = markers if end > passed else markers[passable:]
        ending = [marker for marker in counting if text[:end].endswith(marker)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=400, deadline=None)
@given(
    markers=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=4, unique=True).map(tuple),
    text=LETTERS,
    data=st.data(),
)
def test_cutting_the_text_makes_no_difference(markers: tuple[str, ...], text: str, data: st.DataObject) -> None:
    """Whole, letter by letter, and at any cut: what the plainest rule finds."""
    expected = first_completed(markers, text)
    cut = data.draw(st.integers(0, len(text)))
    assert scan(markers, [text]) == expected
    assert scan(markers, list(text)) == expected
    assert scan(markers, [text[:cut], text[cut:]]) == expected


@settings(max_examples=400, deadline=None)
@given(
    markers=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=4, unique=True).map(tuple),
    text=LETTERS,
    data=st.data(),
)
def test_a_passable_marker_counts_where_it_ends_late_enough(
    markers: tuple[str, ...], text: str, data: st.DataObject
) -> None:
    """Letter by letter and cut where it begins to count: one that began before is found, one that ended is not."""
    passable, passed = data.draw(st.integers(0, len(markers))), data.draw(st.integers(0, len(text)))
    expected = first_completed(markers, text, passable, passed)
    for pieces in ([*text], [text[:passed], text[passed:]]):
        scanner, before, fed, found = MarkerScanner(markers, passable), "", 0, None
        for piece in pieces:
            fed += len(piece)
            result = scanner.feed(piece, max(0, fed - passed))
            before += result.before
            if result.found is not None:
                found = markers[result.found.marker]
                break
        assert (before + ("" if found else scanner.finish()), found) == expected


def test_what_may_become_a_marker_is_held_and_released() -> None:
    """A held beginning goes out with the letter that rules the marker out."""
    scanner = MarkerScanner(("END",))
    assert scanner.feed("the E") == Scan("the ")
    assert scanner.feed("N") == Scan("")
    assert scanner.feed("Emy") == Scan("ENEmy")


def test_only_as_much_as_needed_is_held() -> None:
    """When a beginning is ruled out, a later beginning inside it is still held."""
    scanner = MarkerScanner(("aab",))
    assert scanner.feed("aa") == Scan("")
    assert scanner.feed("a") == Scan("a")
    assert scanner.feed("b") == Scan("", MarkerFound(marker=0, after=""))


def test_text_behind_a_marker_is_handed_back() -> None:
    """A machine with states scans it with its next markers."""
    assert MarkerScanner(("<t>",)).feed("x<t>y<t>") == Scan("x", MarkerFound(marker=0, after="y<t>"))


def test_no_markers_hold_nothing() -> None:
    """Without stop strings text passes as it comes."""
    scanner = MarkerScanner(())
    assert scanner.feed("abc") == Scan("abc")
    assert scanner.finish() == ""
