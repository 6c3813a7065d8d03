"""Token spans: each token told once, in order, when its text is out."""

from frontend.text.spans import TokenSpans


def spans_of(*lengths: int) -> TokenSpans:
    """Tokens that completed these numbers of characters."""
    spans = TokenSpans()
    for length in lengths:
        spans.add(length)
    return spans


def test_a_token_is_told_with_its_last_character() -> None:
    """Not before, and once."""
    spans = spans_of(2, 3)
    assert spans.told(1) == ()
    assert spans.told(2) == (0,)
    assert spans.told(4) == ()
    assert spans.told(5) == (2,)
    assert spans.told(9) == ()


def test_silent_tokens_go_with_the_next_text() -> None:
    """Three bytes of one character begin where it begins."""
    spans = spans_of(1, 0, 0, 1)
    assert spans.told(1) == (0,)
    assert spans.told(2) == (1, 1, 1)


def test_the_end_gives_the_silent_ones_what_is_left() -> None:
    """A held half character, or nothing at all; text of tokens that were told already adds none."""
    for held, end in ((1, 3), (0, 2)):
        spans = spans_of(2, 0, 0)
        spans.finish(held)
        assert spans.told(end) == (0, 2, 2)
    spans = spans_of(2)
    spans.finish(1)
    assert spans.told(3) == (0,)


def test_a_cut_keeps_what_has_text_before_it() -> None:
    """A token that the cut goes through stays; those behind it, and silent ones, never come."""
    spans = spans_of(2, 3, 1, 0)
    assert spans.cut(3) == (0, 2)
    spans.add(1)
    assert spans_of(2, 3).cut(2) == (0,)
    assert spans_of(2).cut(0) == ()
    assert spans_of(0, 0).cut(0) == ()
