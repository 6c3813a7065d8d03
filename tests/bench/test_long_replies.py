"""bench.long_replies: every case is what it says, and its turns are all there."""

import pytest

from bench.long_replies import Case, cases, cost_of, dialects, reading, telling, whole
from frontend.parsers.registry import TOOL_FORMATS
from frontend.text.structure import PLAIN_TEXT
from tests.frontend.parsers.golden_cases import told

CASES = {case.name: case for case in cases(1_000)}


def test_each_format_has_a_long_string_and_a_long_array() -> None:
    """All that there are."""
    for kind in ("a string", "an array"):
        assert set(TOOL_FORMATS) == {name.partition(":")[0] for name in CASES if name.endswith(kind)}


@pytest.mark.parametrize("case", [case for case in CASES.values() if ":" in case.name], ids=lambda case: case.name)
def test_a_call_is_read_as_one(case: Case) -> None:
    """Or its cost would be that of text."""
    assert [kind for kind, _ in told(case.form, [case.text])] == ["call", "arguments", "end"]


def test_a_cost_counts_each_turn() -> None:
    """The last one is the reply's end."""
    heard: list[str] = []
    cost = cost_of(iter([lambda name=name: heard.append(name) for name in ("a", "b", "c", "d", "end")]))
    assert heard == ["a", "b", "c", "d", "end"]
    assert 0 <= cost.last_s <= cost.longest_s
    assert cost.longest_s <= cost.last_s + cost.first_half_s + cost.second_half_s


def test_a_text_is_read_in_tokens() -> None:
    """Of four characters, and its end."""
    assert len(list(reading(Case("x", PLAIN_TEXT, "a" * 10)))) == 4


@pytest.mark.parametrize("name", list(dialects()))
def test_each_dialect_tells_a_reply(name: str) -> None:
    """As a stream and whole, each with all of its text."""
    dialect, body = dialects()[name]
    frames = [turn() for turn in telling(dialect, body, 3)]
    assert len(frames) == 5
    said = b"".join(b"".join(part) for part in frames if isinstance(part, list))
    assert said.count(b" fox") >= 3
    *_, last = whole(dialect, body, 3)
    body_bytes = last()
    assert isinstance(body_bytes, bytes)
    assert b" fox fox fox" in body_bytes
