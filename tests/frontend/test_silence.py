"""The silence timer of a stream."""

import asyncio

from frontend.silence import Silence


async def test_notices_each_silence() -> None:
    """Without a word it fires again and again."""
    noticed = asyncio.Semaphore(0)
    with Silence(0.01, noticed.release):
        async with asyncio.timeout(5):
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
