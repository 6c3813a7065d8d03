"""How many prompt tokens were there already, in each dialect's words: whole, streamed, and where the text was cut."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.messages import Cancel
from tests.fakes.deadline import until
from tests.fakes.serving import serving, told_usages

CACHED: Final = 7
CHAT: Final = {"messages": [{"role": "user", "content": "!count"}], "max_tokens": 40}
ROUTES: Final[dict[str, tuple[str, dict[str, Any], Callable[[Any], int]]]] = {
    "chat": (
        "/v1/chat/completions",
        {**CHAT, "stream_options": {"include_usage": True}},
        lambda usage: usage["prompt_tokens_details"]["cached_tokens"],
    ),
    "completions": (
        "/v1/completions",
        {"prompt": "!count a prompt of some tokens", "max_tokens": 40, "stream_options": {"include_usage": True}},
        lambda usage: usage["prompt_tokens_details"]["cached_tokens"],
    ),
    "responses": (
        "/v1/responses",
        {"input": "!count", "max_output_tokens": 40},
        lambda usage: usage["input_tokens_details"]["cached_tokens"],
    ),
    "messages": ("/v1/messages", CHAT, lambda usage: usage["cache_read_input_tokens"]),
}
STOPS: Final = {"chat": "stop", "completions": "stop", "responses": "stop", "messages": "stop_sequences"}


@pytest.mark.parametrize("has_stop", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_usage_tells_it_in_both_modes(runtime_dir: Path, route: str, has_stop: bool) -> None:
    """A11: after a stop in the text, too, when the engine's own finish is not waited for."""
    path, body, cached_of = ROUTES[route]
    stop = {STOPS[route]: [" 5"] if STOPS[route] == "stop_sequences" else " 5"} if has_stop else {}
    async with serving(runtime_dir, cached_tokens=CACHED) as served:
        whole_body = {name: value for name, value in body.items() if name != "stream_options"}
        status, whole = await served.answer(path, {**whole_body, **stop})
        assert (status, cached_of(whole["usage"])) == (200, CACHED)
        async with await served.post(path, {**body, **stop, "stream": True}) as response:
            usages = told_usages(await response.read())
    assert cached_of(usages[-1]) == CACHED
    if route == "messages":
        # An agent reads the first one; what was computed and what was not are told apart there already.
        assert cached_of(usages[0]) == CACHED
        assert usages[0]["input_tokens"] == usages[-1]["input_tokens"] == whole["usage"]["input_tokens"]


async def test_a_text_that_is_cut_says_how_much_of_its_row_comes_again(runtime_dir: Path) -> None:
    """The prompt and the tokens up to the stop; what the engine computed beyond is worth nothing to the next turn."""
    async with serving(runtime_dir, step_ms=5.0, context_length=1_000_000) as served:
        _, whole = await served.answer("/v1/chat/completions", {**CHAT, "stop": " 5", "max_tokens": 900_000})
        await until(lambda: not served.engine.rows.live(), "the row leaves the engine")
        cancels = [message for message in served.engine.heard if isinstance(message, Cancel)]
    usage = whole["usage"]
    assert [(cancel.reason, cancel.keep_tokens) for cancel in cancels] == [
        ("stop", usage["prompt_tokens"] + usage["completion_tokens"])
    ]


@pytest.mark.parametrize("route", ["chat", "completions", "responses"])
async def test_a_salt_goes_to_the_engine(runtime_dir: Path, route: str) -> None:
    """E9: vLLM's field; without one the prompt is shared with all others that have none."""
    path, body, _ = ROUTES[route]
    body = {name: value for name, value in body.items() if name != "stream_options"}
    async with serving(runtime_dir) as served:
        for salt in ("tenant 7", None):
            status, _ = await served.answer(path, {**body, "cache_salt": salt})
            assert status == 200
        assert [submit.cache_salt for submit in served.engine.submits()] == ["tenant 7", None]
        for wrong in ("", "x" * 1_025, 5):
            status, reply = await served.answer(path, {**body, "cache_salt": wrong})
            assert (status, reply["error"]["param"]) == (400, "cache_salt")
