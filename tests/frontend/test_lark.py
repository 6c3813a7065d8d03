"""Grammars in llguidance's Lark: marks that are tokens are named by id, text up to a mark is one lexeme."""

import pytest

from frontend.lark import Lark, Opening
from tests.fakes.grammars import takes


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("", ""),
        ('a"b\n', '"a\\"b\\n"'),
        ("<x>", "<[7]>"),
        ("a<x><xy>b", '"a" <[7]> <[8]> "b"'),
    ],
)
def test_a_literal_names_tokens_by_id(text: str, expression: str) -> None:
    """The longest that begins at a place."""
    assert Lark({"<x>": 7, "<xy>": 8}).literal(text) == expression


def test_text_before_a_token_is_any_text() -> None:
    """It cannot spell the token."""
    assert Lark({"<x>": 7}).text_up_to("<x>\nrest") == Opening("TEXT <[7]>", "\nrest")


def test_text_before_a_mark_ends_with_the_mark() -> None:
    """Up to its last character that is no white space."""
    lark = Lark({"<x>": 7})
    assert lark.text_up_to("a/b\n<x>") == Opening("before_0", "\n<x>")
    assert r"before_0[lazy]: /(?s:.)*a\/b/" in lark.text()


def test_only_terminals_that_are_used_are_declared() -> None:
    """llguidance refuses none, but a reader wonders."""
    lark = Lark({})
    lark.rule("start", "SPACE")
    assert lark.text() == "%llguidance {}\nstart: SPACE\nSPACE: /\\s*/\n"


def test_a_number_has_an_end() -> None:
    """A small model writes digits until its reply is cut."""
    lark = Lark({})
    lark.rule("start", "NUMBER")
    assert takes("lark", lark.text(), ":12")
    assert not takes("lark", lark.text(), ":1234")
