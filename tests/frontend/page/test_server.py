"""The page's side of HTTP: events out of bytes, and every error in words."""

import json

import pytest
from playwright.async_api import Page

from frontend.errors import HTTP_MEANINGS

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAM = (
    ': waiting\n\ndata: {"a": "né 🦊"}\n\ndata: two\ndata: lines\r\n\r\n'
    "event: x\nid: 1\ndata:close\r\rdata:  spaced\n\ndata: [DONE]\n\n"
)
EVENTS = ['{"a": "né 🦊"}', "two\nlines", "close", " spaced", "[DONE]"]


async def test_events_at_every_split(functions: Page) -> None:
    """Cut into two at every byte, and into single bytes: the same events, whatever the letters and line ends."""
    found = await functions.evaluate(
        """text => {
            const bytes = new TextEncoder().encode(text);
            const read = (...cuts) => {
                const decoder = new SseDecoder();
                const piece = (from, index) => decoder.push(bytes.slice(from, cuts[index] ?? bytes.length));
                return [0, ...cuts].flatMap(piece);
            };
            const splits = Array.from(bytes, (_, cut) => read(cut));
            return [...splits, read(...Array.from(bytes, (_, cut) => cut))];
        }""",
        STREAM,
    )
    assert len(found) == len(STREAM.encode()) + 1
    assert [events for events in found if events != EVENTS] == []


async def test_an_event_without_its_end_is_none(functions: Page) -> None:
    """A stream that breaks inside an event does not give half of it."""
    cut = "new SseDecoder().push(new TextEncoder().encode('data: {\"a\": 1}\\n'))"
    assert await functions.evaluate(cut) == []


@pytest.mark.parametrize("code", sorted(HTTP_MEANINGS, key=str))
async def test_every_error_of_the_server_has_words(functions: Page, code: str) -> None:
    """A title and a sentence for each code of the table; the server's own words, but where the page knows better."""
    meaning = HTTP_MEANINGS[code]
    words = await functions.evaluate(
        "([message, facts]) => describeError(new ServerError(message, facts))",
        ["what the server said, in full", {"status": meaning.status, "code": str(code)}],
    )
    assert words["title"]
    assert words["text"].endswith(".")
    assert ("What the server said, in full." in words["text"]) == (code not in ("queue_full", "invalid_api_key"))


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (401, "The server asks for an API key"),
        (429, "The server is full"),
        (503, "The engine is not ready"),
        (500, "Something went wrong in the server"),
        (200, "The answer broke off"),
        (400, "The server did not take this"),
    ],
)
async def test_an_unknown_code_has_the_words_of_its_status(functions: Page, status: int, title: str) -> None:
    """A proxy's error, or a newer server's."""
    words = await functions.evaluate(
        "status => describeError(new ServerError('x', { status, code: 'of tomorrow' }))", status
    )
    assert words == {"title": title, "text": words["text"]}


async def test_a_refusal_without_an_envelope(functions: Page) -> None:
    """An answer that is no JSON still says its status."""
    message = await functions.evaluate(
        "async body => (await refusal(new Response(body, { status: 502 }))).message", "<html>bad gateway</html>"
    )
    assert message == "The server answered with status 502."
    asked = """async body => {
        const error = await refusal(new Response(body, { status: 429, headers: { 'retry-after': '7' } }));
        return [error.message, error.code, error.retryAfterS];
    }"""
    told = await functions.evaluate(asked, json.dumps({"error": {"message": "m", "code": "queue_full"}}))
    assert told == ["m", "queue_full", 7]
