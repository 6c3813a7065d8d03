"""Server-sent events: the framing, byte for byte, and a stream's bounds."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from frontend.sse import DONE, comment, frame
from tests.fakes.deadline import until
from tests.fakes.serving import decoded_events, serving

FLOOD = "!flood 100"
CHAT = {"messages": [{"role": "user", "content": FLOOD}]}
FLOODS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": FLOOD},
    "/v1/responses": {"input": FLOOD},
    "/v1/messages": CHAT,
}


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


@pytest.mark.parametrize("path", FLOODS)
async def test_a_client_that_stops_reading_is_dropped(runtime_dir: Path, path: str) -> None:
    """A10: a stream left unread is cancelled in the end, with its buffers bounded, and its sibling is served."""
    async with serving(runtime_dir, {"stall_s": 0.3}, context_length=10_000_000, step_ms=1) as served:
        response = await served.post(path, {**FLOODS[path], "stream": True})
        assert response.status == 200
        response._connection.transport.pause_reading()  # type: ignore[union-attr]
        status, reply = await served.answer("/v1/completions", {"prompt": "!count", "max_tokens": 50})
        assert (status, reply["usage"]["completion_tokens"]) == (200, 50)
        await until(lambda: len(served.engine.cancels()) == 1, "the unread stream is cancelled")
        await until(lambda: not served.engine.rows.live(), "its row is gone")
        response.close()
