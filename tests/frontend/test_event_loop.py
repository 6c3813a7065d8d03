"""What the event loop does itself for a long request and a long reply: nothing that grows with them."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bench.long_chats import long_chats
from tests.fakes.serving import serving

MESSAGES = [{"role": "user", "content": "hi"}]
# Every route that makes tokens of a body: a small one, and the functions whose work grows with it, by file and name.
RENDERS = {"template.ChatTemplate._render"}
TOKENIZES = {"tokenizer.Tokenizer._encode"}
SHORT: dict[str, tuple[dict[str, Any], set[str]]] = {
    "/v1/chat/completions": ({"messages": MESSAGES, "max_tokens": 1}, {"openai_chat.parse_chat", *RENDERS, *TOKENIZES}),
    "/v1/completions": ({"prompt": "hi", "max_tokens": 1}, {"openai_completions.parse_completion", *TOKENIZES}),
    "/v1/messages": (
        {"model": "fake-model", "messages": MESSAGES, "max_tokens": 1},
        {"anthropic.parse_message", *RENDERS, *TOKENIZES},
    ),
    "/v1/messages/count_tokens": (
        {"model": "fake-model", "messages": MESSAGES},
        {"anthropic.parse_message", *RENDERS, *TOKENIZES},
    ),
    "/v1/responses": (
        {"input": "hi", "max_output_tokens": 1, "store": False},
        {"openai_responses.parse_responses", *RENDERS, *TOKENIZES},
    ),
    "/tokenize": ({"prompt": "hi"}, {"tokenizing._parse_tokenize", *TOKENIZES}),
}
HEAVY = {"request_body.decoded", *(name for _, names in SHORT.values() for name in names)}
LONG = {chat.name: chat for chat in long_chats(120_000)}
# Of a long request 230 were seen; one call for each turn of a conversation would be more than twice as many.
MOST_CALLS = 400
FLOOD = "!flood 100"
REPLIES: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/messages": (
        {"model": "fake-model", "messages": [{"role": "user", "content": FLOOD}]},
        "anthropic_frames.message_reply",
    ),
    "/v1/responses": ({"input": FLOOD, "store": False}, "openai_responses_frames.whole_response"),
}


@contextmanager
def calls_on_the_loop() -> Iterator[Counter[str]]:
    """Counts the functions of the frontend that this thread, which is the loop's, calls until the block ends."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        del arg
        path = Path(frame.f_code.co_filename)
        is_ours = "frontend" in path.parts[-3:-1] and "tests" not in path.parts
        # Heartbeats come as time passes.
        if event == "call" and is_ours and path.stem not in ("engine_client", "channel"):
            seen[f"{path.stem}.{frame.f_code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("path", SHORT)
async def test_what_a_small_request_does_is_seen(runtime_dir: Path, path: str) -> None:
    """On the loop, for a thread would cost more; so the names below are those of what runs."""
    body, names = SHORT[path]
    async with serving(runtime_dir) as served:
        with calls_on_the_loop() as calls:
            status, _ = await served.answer(path, body)
    assert status == 200
    assert {"request_body.decoded", *names} <= set(calls)


@pytest.mark.parametrize("name", LONG)
async def test_a_long_request_is_read_beside_the_loop(runtime_dir: Path, name: str) -> None:
    """Its JSON, its template and its tokens; and nothing else is done once for each turn, tool or token."""
    chat = LONG[name]
    async with serving(runtime_dir, context_length=1_000_000, prefill_tokens_per_turn=1_000_000) as served:
        with calls_on_the_loop() as calls:
            async with await served.post(chat.path, chat.body) as response:
                reply = await response.read()
    assert response.status == 200, reply
    assert set(calls) & HEAVY == set()
    assert sum(calls.values()) < MOST_CALLS, calls.most_common(5)


@pytest.mark.parametrize("path", REPLIES)
@pytest.mark.parametrize(("tokens", "is_on_loop"), [(10, True), (3_000, False)])
async def test_a_long_reply_is_put_together_beside_the_loop(
    runtime_dir: Path, path: str, tokens: int, is_on_loop: bool
) -> None:
    """One of 100,000 tokens took a tenth of a second; a short one is not worth a thread."""
    body, name = REPLIES[path]
    async with serving(runtime_dir, context_length=10_000, step_ms=1.0) as served:
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        with calls_on_the_loop() as calls:
            status, reply = await served.answer(path, {**body, limit: tokens})
    assert (status, reply["usage"]["output_tokens"]) == (200, tokens)
    assert (name in calls) == is_on_loop


async def test_a_small_request_that_goes_on_from_a_long_one_is_read_beside_the_loop(runtime_dir: Path) -> None:
    """Its body says nothing of how long the conversation is; stored ones are read by a thread of their own."""
    chat = LONG["responses"]
    async with serving(runtime_dir, context_length=1_000_000, prefill_tokens_per_turn=1_000_000) as served:
        async with await served.post(chat.path, chat.body) as response:
            first = json.loads(await response.read())
        with calls_on_the_loop() as calls:
            body = {"input": "go on", "previous_response_id": first["id"], "max_output_tokens": 1}
            status, reply = await served.answer(chat.path, body)
    assert (status, reply["previous_response_id"]) == (200, first["id"])
    assert set(calls) & HEAVY <= {"request_body.decoded"}
    assert sum(calls.values()) < MOST_CALLS, calls.most_common(5)
