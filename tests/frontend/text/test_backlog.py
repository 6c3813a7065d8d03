"""Text that waits: short pieces, what comes back first."""

from frontend.text.backlog import PIECE_CHARACTERS, Backlog


def test_a_short_text_is_its_own_piece() -> None:
    """Nothing of it waits."""
    backlog = Backlog()
    for text in ("", "a", "b" * PIECE_CHARACTERS):
        assert backlog.piece_of(text) == text
        assert (backlog.characters, backlog.next_piece()) == (0, "")


def test_a_long_text_comes_in_pieces() -> None:
    """All of it, for every length around whole pieces."""
    for length in range(2 * PIECE_CHARACTERS, 2 * PIECE_CHARACTERS + 3):
        text = "".join(chr(97 + number % 26) for number in range(length))
        backlog = Backlog()
        pieces = [backlog.piece_of(text)]
        assert backlog.characters == length - len(pieces[0])
        while piece := backlog.next_piece():
            pieces.append(piece)
        assert "".join(pieces) == text
        assert max(map(len, pieces)) == PIECE_CHARACTERS
        assert backlog.characters == 0


def test_what_comes_back_is_read_first() -> None:
    """Before the rest of that which it came from."""
    backlog = Backlog()
    first = backlog.piece_of("a" * PIECE_CHARACTERS + "b")
    assert first == "a" * PIECE_CHARACTERS
    assert backlog.piece_of("c" * PIECE_CHARACTERS + "d") == "c" * PIECE_CHARACTERS
    assert backlog.characters == 2
    assert [backlog.next_piece(), backlog.next_piece(), backlog.next_piece()] == ["d", "b", ""]
