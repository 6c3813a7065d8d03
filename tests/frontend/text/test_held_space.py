"""White space that is held: all of it comes out, and its end can be looked at."""

from frontend.text.held_space import HeldSpace


def test_all_of_it_comes_out_once() -> None:
    """In order, and then nothing."""
    space = HeldSpace()
    for part in (" ", "", "\n\n", "\t"):
        space.add(part)
    assert len(space) == 4
    assert space.take() == " \n\n\t"
    assert (space.take(), len(space)) == ("", 0)


def test_its_end_can_be_looked_at() -> None:
    """However it came in pieces."""
    whole = " \n\t\r "
    for cut in range(len(whole) + 1):
        space = HeldSpace()
        space.add(whole[:cut])
        space.add(whole[cut:])
        for characters in range(7):
            assert space.tail(characters) == whole[len(whole) - min(characters, len(whole)) :]
        assert space.take() == whole
