"""F4: a device step that never returns, with real processes: seen, ended, started again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.heartbeat import EXIT_STUCK
from tests.e2e.client import COMPLETIONS, client_of
from tests.e2e.cluster import stats, supervised, wait_not_ready, wait_ready
from tests.fakes import stuck_model
from tests.fakes.model_code import build_model_with
from tests.fakes.stuck_model import STUCK_PROMPT

# Far above what a forward of the tiny model takes on a busy machine, warming up included.
STEP_LIMIT_S = 6.0
GOOD: dict[str, Any] = {"prompt": [5, 6, 7], "max_tokens": 8, "ignore_eos": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model that gets stuck on one prompt."""
    return build_model_with(stuck_model, tmp_path / "stuck")


async def test_a_step_that_never_returns_costs_one_restart(runtime_dir: Path, model: Path) -> None:
    """Readiness goes, the engine ends itself and is started again; who ran then is told, and the next is served."""
    with supervised(runtime_dir, model, STEP_LIMIT_S) as served:
        await asyncio.to_thread(wait_ready, served, served.process)
        async with client_of(served.url) as client:
            expected = await client.ask(COMPLETIONS, GOOD)
            before = stats(served.url)["engine"]
            stuck = asyncio.create_task(client.ask(COMPLETIONS, {"prompt": STUCK_PROMPT, "max_tokens": 4}))
            await asyncio.to_thread(wait_not_ready, served)
            failed = await stuck
            await asyncio.to_thread(wait_ready, served, served.process)
            after = stats(served.url)["engine"]
            again = await client.ask(COMPLETIONS, GOOD)
        said = served.process.said()
    assert failed.status >= 500, failed.body
    assert failed.body["error"]["message"]
    assert (before["restarts"], after["restarts"]) == (0, 1)
    assert before["epoch"] != after["epoch"]
    assert (again.status, again.text) == (200, expected.text)
    assert "engine.stuck turn_age_s=" in said
    assert f"ended with status {EXIT_STUCK}" in said
