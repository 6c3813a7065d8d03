"""ReplyStructure: what a text is made of, and where stop strings and markers count, at every split."""

from dataclasses import replace

import pytest

from frontend.parsers.base import ReasoningFormat
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.text.structure import PLAIN_TEXT, ReplyForm, ReplyStructure, StopFound
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.generated_calls import Call, forceable, forced_text, form_of, templates, written
from tests.frontend.parsers.golden_cases import Told, splits, told

TEMPLATES = templates()
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


@pytest.mark.parametrize("name", forceable(TEMPLATES))
def test_a_forced_call_that_is_cut_is_never_text(name: str) -> None:
    """In every format that can be forced, wherever max_tokens cuts it, also behind a thought or another call."""
    form = form_of(TEMPLATES[name])
    forced = replace(form, is_call_forced=True)
    grammar = TOOL_FORMATS[name].grammar
    calls = [Call("write-file", {"path": "a", "content": "b"}), Call("now", {})]
    text = forced_text(TEMPLATES[name], calls[:1] if grammar is not None and grammar.is_single else calls)
    if form.reasoning is not None and form.reasoning.headers is None:
        text = f"{form.reasoning.begins[0]}Hm.{form.reasoning.ends[0]}{form.reasoning.behind_end}{text}"
    cuts = [text[:length] for length in range(len(text))]
    assert any("text" in dict(told(form, [cut])) for cut in cuts)
    for cut in cuts:
        whole = told(forced, [cut])
        assert "text" not in dict(whole), cut
        assert [told(forced, list(cut)), told(forced, [cut[:-3], cut[-3:]])] == [whole, whole]


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) & set(TOOL_FORMATS)))
def test_a_cut_behind_a_whole_call_leaves_no_mark(name: str) -> None:
    """What ends the call is not told, however much of it has come."""
    form = form_of(TEMPLATES[name])
    text = written(TEMPLATES[name], [Call("write-file", {"path": "a", "content": "b"})]).strip()
    cuts = [told(form, [text[:length]]) for length in range(len(text) + 1)]
    behind = [pieces for pieces in cuts if ["end", ""] in pieces]
    assert behind != []
    assert [pieces for pieces in behind if pieces[-1] != ["end", ""]] == []


def test_what_a_forced_reply_says_in_place_of_its_call_is_told() -> None:
    """Nothing is lost of a reply that came to its end, or was cut behind what cannot be a call."""
    forced = replace(BOTH, is_call_forced=True)
    text = '<tool_call>{"name": "wea'
    assert told(forced, [text], is_cut=False) == [["text", text]]
    assert told(forced, ["Hello <tool_", "x> there"]) == [["text", "Hello <tool_x> there"]]
    assert told(forced, ["<think>", "Hm. </th"]) == [["reasoning", "Hm. </th"]]


@pytest.mark.parametrize(
    ("written", "behind"),
    [
        ('{"name": "weather", "arguments": {"city": ', "Oslo}}"),
        ('{"name": "weather", "arguments": {"city": "Oslo', ""),
    ],
)
def test_a_call_that_breaks_says_so(written: str, behind: str) -> None:
    """With all of it as the model wrote it, so that it can be told as text; a mark that is hidden is not in it."""
    form = replace(BOTH, hidden=("<tool_call>", "</tool_call>"), is_parallel=False)
    marks = ["</tool_call>", " b"] if behind else []
    for pieces in splits(written + behind):
        found = told(form, ["a ", "<tool_call>", *pieces, *marks], is_cut=False)
        assert [piece for piece in found if piece[0] != "arguments"] == [
            ["text", "a "],
            ["call", "weather"],
            ["broken", written],
            *([["text", behind + " b"]] if behind else []),
        ]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"' + "<tool_call>now " * 60 + f'": 1}} {CALL} and so on. STOP here',
        " " * 700 + "STOP" + " x" * 300,
        " \n" * 300 + CALL + "\n" * 600 + f"{CALL} then. " * 5 + "STOP",
        "<think>" + "\n" * 600 + "so" + " \n" * 300 + "then</think>" + " " * 600 + "STO" * 200 + "STOP",
    ],
    ids=["a section given back", "white space", "calls", "reasoning"],
)
def test_long_texts_are_the_same_at_once(text: str) -> None:
    """Where one is read in several pieces, and the stop string stands behind what a call gave back."""
    by_character = told(BOTH, list(text), ("STOP",))
    assert by_character[-1] == ["stop", "STOP"]
    for size in (3, 100, 255, 256, 257, 1_000, len(text)):
        assert told(BOTH, [text[at : at + size] for at in range(0, len(text), size)], ("STOP",)) == by_character


@pytest.mark.parametrize("before", [0, 200, 700])
@pytest.mark.parametrize("behind", [0, 1, 300, 900])
def test_what_is_behind_a_stop_string_is_counted(before: int, behind: int) -> None:
    """Also what was not looked at yet."""
    structure = ReplyStructure(BOTH, ("STOP",), include_stop=False)
    *_, found = structure.feed("a " * before + "STOP" + "b" * behind)
    assert found == StopFound("STOP", behind)
