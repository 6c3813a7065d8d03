"""The token count: that of the prompt which a reply to the same body would have, however long it is."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from frontend import token_count
from frontend.dialects.base import Generation
from frontend.model_text import ModelText
from frontend.submission import prompt_length
from protocol.messages import ModelFacts
from tests.fakes.serving import serving

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
RESPONSES, INPUT_TOKENS = "/v1/responses", "/v1/responses/input_tokens"


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


@pytest.mark.parametrize("path", [COUNT, "/messages/count_tokens", f"{COUNT}?beta=true"])
async def test_the_count_is_what_a_reply_reports(runtime_dir: Path, path: str) -> None:
    """Exactly, with a system prompt and a beginning of the reply."""
    turns = [{"role": "user", "content": "Which 🦊?"}, {"role": "assistant", "content": "It is"}]
    asked = {"system": [{"type": "text", "text": "Be brief."}], "messages": turns}
    async with serving(runtime_dir) as served:
        _, reply = await served.answer(MESSAGES, {**asked, "max_tokens": 1})
        assert await served.answer(path, asked) == (200, {"input_tokens": reply["usage"]["input_tokens"]})
        assert len(served.engine.submits()) == 1


async def test_a_prompt_over_the_context_is_counted(runtime_dir: Path) -> None:
    """It is why clients ask."""
    async with serving(runtime_dir, context_length=50) as served:
        status, reply = await served.answer(COUNT, body("word " * 3_000))
        assert status == 200
        assert reply["input_tokens"] > 3_000
        assert (await served.answer(MESSAGES, body("word " * 3_000)))[0] == 400


async def test_a_prompt_over_the_context_many_times_is_refused(runtime_dir: Path) -> None:
    """Before it is tokenised, which would take minutes and gigabytes."""
    async with serving(runtime_dir) as served:
        status, error = await served.answer(COUNT, body("word " * 200_000))
        assert (status, error["error"]["type"]) == (400, "invalid_request_error")
        assert error["error"]["message"].startswith("prompt is too long: ")
        assert error["error"]["message"].endswith(" > 32768 maximum")


async def test_long_prompts_are_counted_beside_the_event_loop(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokenising one takes longer than other requests can wait."""
    threads: list[bool] = []

    def recording(generation: Generation, text: ModelText, facts: ModelFacts) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return prompt_length(generation, text, facts)

    monkeypatch.setattr(token_count, "prompt_length", recording)
    async with serving(runtime_dir) as served:
        for text in ("short", "long " * 1_000):
            assert (await served.answer(COUNT, body(text)))[0] == 200
            assert (await served.answer(INPUT_TOKENS, {"input": text}))[0] == 200
    assert threads == [True, True, False, False]


async def test_what_is_wrong_is_told_as_by_the_other_route(runtime_dir: Path) -> None:
    """Fields, models, methods; what is ignored is named."""
    async with serving(runtime_dir) as served:
        status, error = await served.answer(COUNT, {"messages": []})
        assert (status, error["error"]["type"]) == (400, "invalid_request_error")
        status, error = await served.answer(COUNT, body("x", model="claude-x"))
        assert (status, error["error"]["type"]) == (404, "not_found_error")
        async with await served.post(COUNT, body("x", zebra=1)) as response:
            assert (response.status, response.headers["x-convoy-ignored"]) == (200, "zebra")


async def test_input_is_counted_as_a_response_reads_it(runtime_dir: Path) -> None:
    """Instructions, tools and what it goes on from included; nothing runs, and nothing is stored."""
    async with serving(runtime_dir) as served:
        _, first = await served.answer(RESPONSES, {"input": "!echo a " + "word " * 20})
        tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
        for body in (
            {"input": "!echo b 🦊"},
            {"input": "!echo b", "instructions": "Be brief.", "tools": [tool]},
            {"input": "!echo b", "previous_response_id": first["id"]},
            {"input": [{"role": "user", "content": "one"}, {"role": "user", "content": "!echo b"}]},
        ):
            before = len(served.engine.submits())
            for path in (INPUT_TOKENS, "/responses/input_tokens"):
                status, count = await served.answer(path, body)
                assert (status, count["object"]) == (200, "response.input_tokens")
            assert len(served.engine.submits()) == before
            _, reply = await served.answer(RESPONSES, body)
            assert count["input_tokens"] == reply["usage"]["input_tokens"]


async def test_input_that_cannot_be_read_cannot_be_counted(runtime_dir: Path) -> None:
    """The same errors, and the same names of what is ignored; a prompt over the context is counted."""
    async with serving(runtime_dir, context_length=50) as served:
        for body, param in (
            ({}, "input"),
            ({"input": "x", "conversation": "conv_1"}, "conversation"),
            ({"input": "x", "previous_response_id": "resp_none"}, "previous_response_id"),
        ):
            status, reply = await served.answer(INPUT_TOKENS, body)
            assert (status, reply["error"]["param"]) == (400, param)
        async with await served.post(INPUT_TOKENS, {"input": "word " * 500, "personality": "friendly"}) as response:
            assert response.headers["x-convoy-ignored"] == "personality"
            assert json.loads(await response.read())["input_tokens"] > 500
