"""Which requests are served, clamped or refused, and what a failure looks like."""

import asyncio
from typing import Any

import pytest

from tests.e2e.client import CHAT, COMPLETIONS, Stream, chat, client_of
from tests.e2e.cluster import CONTEXT_TOKENS, MODEL_ID, Cluster
from tests.fakes.serving import decoded_events


async def test_max_tokens_absent_runs_to_the_context(cluster: Cluster) -> None:
    """A6: without max_tokens a row ends exactly at the context's end; a larger one is clamped to it."""
    ids = [50 + number % 200 for number in range(CONTEXT_TOKENS - 20)]
    async with client_of(cluster.url) as client:
        bodies = [{"prompt": ids, "ignore_eos": True, **fields} for fields in ({}, {"max_tokens": 100_000})]
        replies = await asyncio.gather(*(client.ask(COMPLETIONS, body) for body in bodies))
    assert [(reply.status, reply.finish_reason) for reply in replies] == [(200, "length")] * 2
    assert [reply.body["usage"]["total_tokens"] for reply in replies] == [CONTEXT_TOKENS] * 2


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_prompt_over_the_context(cluster: Cluster, path: str) -> None:
    """A6: a prompt that leaves no room is refused, with both numbers."""
    async with client_of(cluster.url) as client:
        text = "lorry " * 2_000
        reply = await client.ask(path, chat(text) if path == CHAT else {"prompt": [60] * CONTEXT_TOKENS})
    error = reply.body["error"]
    assert (reply.status, error["code"], error["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    numbers = {int(word) for word in error["message"].replace(":", " ").replace(",", " ").split() if word.isdigit()}
    assert CONTEXT_TOKENS in numbers
    assert max(numbers) > CONTEXT_TOKENS if path == CHAT else numbers == {CONTEXT_TOKENS}


@pytest.mark.parametrize("model", [None, MODEL_ID, "my-name", "default_model"])
async def test_names_that_are_served(cluster: Cluster, model: str | None) -> None:
    """A8: no name, the served id, a name of --served-model-name, and mlx_lm.server's own."""
    async with client_of(cluster.url) as client:
        reply = await client.ask(CHAT, chat("Hello.", model=model, max_tokens=2))
    assert (reply.status, reply.body["model"]) == (200, model or MODEL_ID)


async def test_name_that_is_not_served(cluster: Cluster) -> None:
    """A8: 404 that names what is served, also for what looks like a repository."""
    async with client_of(cluster.url) as client:
        for model in ("gpt-4o", "mlx-community/Llama-3.2-1B-Instruct-4bit"):
            reply = await client.ask(CHAT, chat("Hello.", model=model))
            assert (reply.status, reply.body["error"]["code"]) == (404, "model_not_found")
            assert MODEL_ID in reply.body["error"]["message"]
            assert "my-name" in reply.body["error"]["message"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    (chat("x", use_beam_search=True), "use_beam_search"),
    (chat("x", typical_p=0.5), "typical_p"),
    (chat("x", length_penalty=1.2), "length_penalty"),
    (chat("x", n=99), "n"),
    (chat("x", response_format={"type": "yaml"}), "response_format"),
    (chat("x", tools=[{"type": "web_search"}]), "tools[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
]


async def test_fields(cluster: Cluster) -> None:
    """A13: unsupported fields are refused by name; unknown ones are ignored, and named in the header."""
    async with client_of(cluster.url) as client:
        for body, name in REFUSED:
            reply = await client.ask(CHAT, body)
            assert reply.status == 400
            assert name in reply.body["error"]["message"]
        reply = await client.ask(CHAT, chat("Hello.", max_tokens=2, zebra=1))
        assert (reply.status, reply.headers["x-convoy-ignored"]) == (200, "zebra")


async def test_deadline(cluster: Cluster) -> None:
    """A12: a passed deadline is 408 when nothing was sent; in a stream an error frame, no finish and no [DONE]."""
    async with client_of(cluster.url) as client:
        body = chat("Tell me a long story.", ignore_eos=True)
        reply = await client.ask(CHAT, {**body, "timeout": 0.5})
        assert (reply.status, reply.body["error"]["code"]) == (408, "deadline_exceeded")
        stream = Stream(decoded_events(await client.late_stream(CHAT, body)))
    assert stream.events[-1]["error"]["code"] == "deadline_exceeded"
    assert stream.finish_reasons == []
    assert "[DONE]" not in stream.events
    assert stream.deltas
