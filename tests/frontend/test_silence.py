"""The silence timer of a stream, and what a silent stream says."""

import asyncio
import json
from pathlib import Path

from frontend.silence import Silence
from tests.fakes.serving import serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


async def test_notices_each_silence() -> None:
    """Without a word it fires again and again."""
    noticed = asyncio.Semaphore(0)
    with Silence(0.01, noticed.release):
        async with asyncio.timeout(60):
            await noticed.acquire()
            await noticed.acquire()


async def test_no_notice_after_the_block() -> None:
    """The timer ends with the block, and 0 means never."""
    for limit_s in (0.0, 60.0):
        with Silence(limit_s, lambda: None) as silence:
            silence.broken()
        assert silence._timer is None or silence._timer.cancelled()


async def test_a_word_puts_it_off() -> None:
    """A timer that fires after a word waits for the rest of the silence instead of noticing."""
    noticed: list[float] = []
    with Silence(60.0, lambda: noticed.append(0.0)) as silence:
        silence.broken()
        silence._fire()
        assert noticed == []
        silence._broken_at_s -= 61
        silence._fire()
        assert len(noticed) == 1


async def test_silent_stream_is_kept_alive(runtime_dir: Path) -> None:
    """A stream that waits sends comment lines, and nothing else, before its first token."""
    async with serving(runtime_dir, {"keepalive_s": 0.05}) as served:
        body = {"messages": [{"role": "user", "content": "!silent"}], "stream": True, "timeout": 600}
        async with await served.post(CHAT, body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            head = [await response.content.readuntil(b"\n\n") for _ in range(2)]
            served.expire()
            blocks = (await response.read()).decode().split("\n\n")
        assert head == [b": waiting\n\n"] * 2
        assert json.loads(blocks[-2].removeprefix("data: "))["error"]["code"] == "deadline_exceeded"


async def test_a_long_prefill_says_how_far_it_is(runtime_dir: Path) -> None:
    """The comment lines of a silent stream count the prompt's tokens, and end where its own text begins."""
    engine = {"step_ms": 5, "prefill_tokens_per_turn": 1}
    async with serving(runtime_dir, {"keepalive_s": 0.02}, **engine) as served:
        body = {"prompt": [5] * 1_900, "max_tokens": 3, "stream": True}
        blocks: list[str] = []
        async with await served.post(COMPLETIONS, body) as response:
            while len({block for block in blocks if block.startswith(": prefill ")}) < 3:
                blocks.append((await response.content.readuntil(b"\n\n")).decode().removesuffix("\n\n"))
            served.engine.rows.prefill_tokens_per_turn = 2_000
            blocks += (await response.read()).decode().split("\n\n")
        told = [block for block in blocks if block.startswith(": prefill ")]
        done = [int(block.removeprefix(": prefill ").partition("/")[0]) for block in told]
        assert len(set(done)) >= 3
        assert done == sorted(done)
        assert all(block.endswith("/1900") for block in told)
        assert 0 < done[0] < done[-1] < 1_900
        assert blocks.index(told[-1]) < next(index for index, block in enumerate(blocks) if block.startswith("data: "))
