"""Waiting for something another thread or process does: by looking, with a deadline, never a fixed sleep."""

import asyncio
import time
from collections.abc import Callable


async def until(is_done: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    """Returns once is_done() holds; fails naming `what` after limit_s seconds."""
    deadline_s = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < deadline_s, f"after {limit_s} s: {what}"
        await asyncio.sleep(0.005)
