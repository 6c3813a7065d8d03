"""What a template writes for calls is read back as these calls: the formats at large, on calls made by chance."""

import pytest

from frontend.parsers.registry import TOOL_FORMATS
from tests.frontend.parsers.generated_calls import (
    Call,
    GeneratedReply,
    calls_of,
    form_of,
    generated_replies,
    read_calls,
    templates,
    written,
)
from tests.frontend.parsers.golden_cases import told

TEMPLATES = templates()
WITH_CALLS = sorted(set(TOOL_FORMATS) & set(TEMPLATES))
REPLIES = 60
# Of hard texts; a format whose strings have no escapes cannot tell some of them from its own marks.
LEAST_SHARE = 0.95
# Their calls have no mark but a bracket, which counts where a reply begins.
WITHOUT_TEXT = ("pythonic", "llama3_json")


def share_read(name: str, replies: list[GeneratedReply]) -> float:
    """How many of the replies are read as the calls they were made of."""
    return sum(read_calls(TEMPLATES[name], reply.text) == reply.calls for reply in replies) / len(replies)


@pytest.mark.parametrize("name", WITH_CALLS)
def test_hard_texts_become_calls(name: str) -> None:
    """Quotes, tags, code, line breaks, white space at the ends."""
    assert share_read(name, generated_replies(TEMPLATES[name], 1, REPLIES)) >= LEAST_SHARE


@pytest.mark.parametrize("name", WITH_CALLS)
def test_plain_texts_all_become_calls(name: str) -> None:
    """No call is lost where nothing needs care."""
    assert share_read(name, generated_replies(TEMPLATES[name], 2, REPLIES, is_plain=True)) == 1


@pytest.mark.parametrize("name", WITH_CALLS)
def test_reasoning_text_and_calls_come_apart(name: str) -> None:
    """As the template joins them, where it does; nothing of its marks is left over."""
    thought, answer = "I need it, <b>.", "" if name in WITHOUT_TEXT else "Let me see."
    calls = [Call("now", {}), Call("write-file", {"path": "a/b"})]
    text = written(TEMPLATES[name], calls, content=answer, reasoning_content=thought)
    pieces = told(form_of(TEMPLATES[name]), list(text))
    found = {kind: "".join(text for one, text in pieces if one == kind).strip() for kind in ("reasoning", "text")}
    assert {"reasoning": thought if thought in text else "", "text": answer} == found
    assert calls == calls_of([piece for piece in pieces if piece[0] not in found])
