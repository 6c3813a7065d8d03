"""Server-sent events: the framing, byte for byte."""

import msgspec

from frontend.sse import DONE, comment, frame
from tests.fakes.serving import decoded_events


class Content(msgspec.Struct):
    """Any frame."""

    text: str


def test_frame_is_one_line() -> None:
    """Line ends inside the text are escaped: a frame is one data line and a blank one."""
    assert frame(Content("a\nb\r\n\u2028")) == b'data: {"text":"a\\nb\\r\\n\xe2\x80\xa8"}\n\n'


def test_a_named_event_has_its_line_before_the_data() -> None:
    """Anthropic's and the Responses API's events have names."""
    assert frame(Content("a"), "ping") == b'event: ping\ndata: {"text":"a"}\n\n'


def test_comment_and_done() -> None:
    """A comment is `: x` and a blank line; the end is OpenAI's."""
    assert comment("waiting") == b": waiting\n\n"
    assert DONE == b"data: [DONE]\n\n"


def test_joined_frames_come_apart_again() -> None:
    """Several frames in one write are as many events."""
    assert decoded_events(b"".join([frame(Content("a")), comment("x"), frame(Content("🦊")), DONE])) == [
        {"text": "a"},
        {"text": "🦊"},
        "[DONE]",
    ]
