"""Kimi K2's ids: the model's own reach the client, who sends them back to it in the next turn."""

import pytest

from frontend.parsers.base import CallBegun
from frontend.parsers.tools.kimi_k2 import KIMI_K2
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.reading import Read


@pytest.mark.parametrize(
    ("written", "begun"),
    [
        ("functions.now:0", CallBegun("now", "functions.now:0")),
        (" functions.now:12 ", CallBegun("now", "functions.now:12")),
        ("now:0", CallBegun("now")),
        ("now", CallBegun("now")),
        ("functions.now", CallBegun("now")),
    ],
)
def test_an_id_is_told_if_it_is_in_the_models_form(written: str, begun: CallBegun) -> None:
    """Another one would be read as an error of ours."""
    text = f"<|tool_call_begin|>{written}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    assert begun == Read(lambda source: KIMI_K2.read(source, TOOLS), [text]).events[0]
