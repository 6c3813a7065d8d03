"""Reasoning before what is held: it must end where the prompt has opened it, and may come where it has not."""

import pytest

from frontend.lark import Lark
from frontend.thought_grammar import Thought, thought_rule
from tests.fakes.grammars import takes


@pytest.mark.parametrize(
    ("is_open", "text", "is_fit"),
    [
        (True, "hm < hm</think>\n\nx", True),
        (True, "x", False),
        (False, "x", True),
        (False, "<think>hm</think>x", True),
        (False, "hm</think>x", False),
        (False, "<think>hm", False),
    ],
)
def test_a_thought_comes_first(is_open: bool, text: str, is_fit: bool) -> None:
    """With the white space behind it."""
    lark = Lark({})
    lark.rule("start", f'{thought_rule(lark, Thought("<think>", "</think>", is_open))} "x"')
    assert takes("lark", lark.text(), text) == is_fit


def test_a_model_that_does_not_think_has_no_rule() -> None:
    """Nothing is added."""
    assert thought_rule(Lark({}), None) == ""
