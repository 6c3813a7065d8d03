"""What a template writes for calls is read back as these calls: the formats at large, on calls made by chance."""

import pytest

from frontend.parsers.registry import TOOL_FORMATS
from tests.frontend.parsers.generated_calls import GeneratedReply, generated_replies, read_calls, templates

TEMPLATES = templates()
WITH_CALLS = sorted(set(TOOL_FORMATS) & set(TEMPLATES))
REPLIES = 100
# Of hard texts; a format whose strings have no escapes cannot tell some of them from its own marks.
LEAST_SHARE = 0.95


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
