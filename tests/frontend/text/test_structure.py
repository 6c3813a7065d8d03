"""ReplyStructure: what a text is made of, and where stop strings and markers count, at every split."""

import pytest

from frontend.parsers.base import ReasoningFormat
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.text.structure import PLAIN_TEXT, ReplyForm
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import Told, splits, told

HERMES, THINK = TOOL_FORMATS["hermes"], REASONING_FORMATS["think"]
BOTH = ReplyForm(call_format=HERMES, tools=TOOLS, reasoning=THINK)
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
CALLED = [["call", "weather"], ["arguments", '{"city": "Oslo"}'], ["end", ""]]


def same_at_every_split(form: ReplyForm, text: str, *stops: str) -> Told:
    """What the text is made of."""
    found = [told(form, pieces, stops) for pieces in splits(text)]
    assert found == [found[0]] * len(found)
    return found[0]


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("Oslo is nice", "is", [["text", "Oslo "], ["stop", "is"]]),
        (f"A {CALL} Oslo", "Oslo", [["text", "A "], *CALLED, ["text", " "], ["stop", "Oslo"]]),
        ("<think>Oslo</think>\n\nIn Oslo", "Oslo", [["reasoning", "Oslo"], ["text", "In "], ["stop", "Oslo"]]),
        ("<think>a</think>\n\nb", "\n\n", [["reasoning", "a"], ["text", "b"]]),
        ("\n\nb", "\n\n", [["stop", "\n\n"]]),
        (f"\n{CALL}", "\n", [["stop", "\n"]]),
        (CALL, "<tool_call>", [["stop", "<tool_call>"]]),
        (f"a{CALL}", "<tool", [["text", "a"], ["stop", "<tool"]]),
        ("a <tool_", "<tool_", [["text", "a "], ["stop", "<tool_"]]),
        ("<tool_", "<tool_", [["stop", "<tool_"]]),
        ("<tool_call>{} Oslo", "Oslo", [["text", "<tool_call>{} "], ["stop", "Oslo"]]),
        (f"{CALL}\n{CALL}", "\n", [*CALLED, ["stop", "\n"]]),
    ],
)
def test_stop_strings_count_in_text_alone(text: str, stop: str, expected: Told) -> None:
    """Not within reasoning or arguments; where a stop and a marker are the same text, the stop is what counts."""
    assert same_at_every_split(BOTH, text, stop) == expected


@pytest.mark.parametrize("text", [" \n", "\n<think", "a \n", "", "<tool_call>", CALL, "<think>x</think>"])
def test_text_alone_comes_as_it_is(text: str) -> None:
    """Without tools and reasoning nothing is a marker, and no white space is cut."""
    assert same_at_every_split(PLAIN_TEXT, text) == ([["text", text]] if text else [])


def test_without_tools_a_call_is_text_and_reasoning_is_none() -> None:
    """The reasoning of a model is told apart with and without tools."""
    form = ReplyForm(call_format=HERMES, reasoning=THINK)
    assert same_at_every_split(form, f"<think>a</think>{CALL}") == [["reasoning", "a"], ["text", CALL]]


def test_a_reply_ends_with_its_only_call() -> None:
    """Where parallel calls are not wanted, what follows is not told."""
    form = ReplyForm(call_format=HERMES, tools=TOOLS, is_parallel=False)
    assert same_at_every_split(form, f"a {CALL}\n{CALL} b") == [["text", "a "], *CALLED]


def test_hidden_markers_never_become_text() -> None:
    """Special tokens, which come whole, are seen by the reader of calls; what is no call is told without them."""
    form = ReplyForm(call_format=HERMES, tools=TOOLS, hidden=("<tool_call>", "</tool_call>"))
    tokens = ["a", "<tool_call>", "b", "</tool_call>", "c"]
    assert told(form, tokens) == told(form, ["".join(tokens)]) == [["text", "abc"]]
    assert same_at_every_split(form, f"a{CALL}") == [["text", "a"], *CALLED]


def test_dropped_marks_are_no_text_and_open_a_new_stretch() -> None:
    """As between the channels of a reply."""
    channels = ReasoningFormat(
        name="x", claims=lambda template: False, begins=("<a>",), ends=("<e>",), dropped=("<s>", "<f>")
    )
    form = ReplyForm(reasoning=channels)
    assert same_at_every_split(form, "<a>think<e><s><f>Hello <a> you<s><a>again") == [
        ["reasoning", "think"],
        ["text", "Hello <a> you"],
        ["reasoning", "again"],
    ]


def test_a_call_may_end_reasoning() -> None:
    """Only in a format that says so."""
    ended = ReasoningFormat(name="x", claims=THINK.claims, begins=THINK.begins, ends=THINK.ends, is_ended_by_calls=True)
    form = ReplyForm(call_format=HERMES, tools=TOOLS, reasoning=ended, is_in_reasoning=True)
    assert same_at_every_split(form, f"hm. {CALL}") == [["reasoning", "hm."], *CALLED]
    assert same_at_every_split(BOTH, f"<think>hm. {CALL}</think>") == [["reasoning", f"hm. {CALL}"]]


def test_many_openers_that_open_nothing_are_read_in_time() -> None:
    """Text that is no call is looked at again, but not from its beginning for each of them."""
    text = "<tool_call>" * 3_000
    assert told(BOTH, [text]) == [["text", text]]
