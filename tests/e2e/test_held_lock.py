"""An engine that holds its interpreter's lock for ever, with real processes: its own watchdog cannot see that."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import COMPLETIONS, client_of
from tests.e2e.cluster import stats, supervised, wait_not_ready, wait_ready
from tests.fakes import held_lock
from tests.fakes.held_lock import HOLDING_PROMPT
from tests.fakes.model_code import build_model_with

# Far above the longest pause of a heartbeat on a busy machine, and what an engine takes there until its first.
SILENCE_LIMIT_S = 30.0
GOOD: dict[str, Any] = {"prompt": [5, 6, 7], "max_tokens": 8, "ignore_eos": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model that takes the lock along on one prompt."""
    return build_model_with(held_lock, tmp_path / "held")


async def test_a_held_lock_costs_one_restart(runtime_dir: Path, model: Path) -> None:
    """The supervisor says so, the engine where its threads stand; it is ended, and the next request is served."""
    with supervised(runtime_dir, model, silence_limit_s=SILENCE_LIMIT_S) as served:
        await asyncio.to_thread(wait_ready, served, served.process)
        async with client_of(served.url) as client:
            expected = await client.ask(COMPLETIONS, GOOD)
            before = stats(served.url)["engine"]
            held = asyncio.create_task(client.ask(COMPLETIONS, {"prompt": HOLDING_PROMPT, "max_tokens": 4}))
            await asyncio.to_thread(wait_not_ready, served)
            failed = await held
            await asyncio.to_thread(wait_ready, served, served.process)
            after = stats(served.url)["engine"]
            again = await client.ask(COMPLETIONS, GOOD)
        said = served.process.said()
    assert failed.status == 503, failed.body
    assert (before["restarts"], after["restarts"]) == (0, 1)
    assert (again.status, again.text) == (200, expected.text)
    line = f"engine (pid {before['pid']}) has said nothing for {SILENCE_LIMIT_S:g} s"
    assert said.count("has said nothing for") == said.count(line) == 1
    # Of the thread that holds the lock, and of the one that waits for it.
    for place in ("held_lock.py", "engine/heartbeat.py", "engine/loop.py"):
        assert place in said.split(line)[1].split("restart 1")[0]
    assert f"engine (pid {before['pid']}) was ended by {signal.SIGKILL.name}; restart 1" in said
