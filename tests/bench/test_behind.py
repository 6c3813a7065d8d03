"""The waits of a short prompt behind a long one, against a server of known delays."""

import asyncio
import json
import random
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.behind import Lengths, Waits, run_once, table
from bench.load import new_session


def _frame(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def _answer(tokens: int) -> bytes:
    text = _frame(choices=[{"index": 0, "text": "word", "finish_reason": "length"}])
    usage = _frame(choices=[], usage={"prompt_tokens": tokens, "completion_tokens": 16})
    return text + usage + b"data: [DONE]\n\n"


async def test_both_prompts_are_on_their_way_together() -> None:
    """Each alone, then a pair: a server that holds the long one until the short one has come answers both."""
    seen: list[int] = []
    is_short_here = asyncio.Event()

    async def serve(request: web.Request) -> web.Response:
        body = await request.json()
        assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (16, True, True)
        seen.append(len(body["prompt"]))
        if len(seen) == 3:
            await is_short_here.wait()
        if len(seen) == 4:
            is_short_here.set()
        return web.Response(body=_answer(len(body["prompt"])), content_type="text/event-stream")

    application = web.Application()
    application.router.add_post("/v1/completions", serve)
    async with TestServer(application) as server, new_session() as session:
        url = str(server.make_url("")).rstrip("/")
        waits = await run_once(session, url, Lengths(50, 3, 0.0), random.Random(1))
    assert seen == [3, 50, 50, 3]
    assert min(waits.short_behind_ms, waits.long_before_ms) > 0


def test_the_table_holds_medians() -> None:
    """Of each prompt, alone and together."""
    waits = [Waits(float(n), 10.0 * n, 100.0 * n, 1_000.0 * n) for n in (1, 2, 9)]
    assert [line.split()[:3] for line in table(waits).splitlines()[1:]] == [
        ["short", "2", "200"],
        ["long", "20", "2000"],
    ]
