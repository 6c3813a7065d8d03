"""A device that fails whatever it is asked, with real processes: seen after three faults, and begun anew."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.heartbeat import EXIT_STUCK
from tests.e2e.client import COMPLETIONS, client_of
from tests.e2e.cluster import stats, supervised, wait_not_ready, wait_ready
from tests.fakes import lost_device
from tests.fakes.lost_device import FATAL_PROMPT, WORDS
from tests.fakes.model_code import build_model_with

GOOD: dict[str, Any] = {"prompt": [5, 6, 7], "max_tokens": 8, "ignore_eos": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model whose device is lost after one prompt."""
    return build_model_with(lost_device, tmp_path / "lost")


async def test_a_lost_device_costs_one_restart(runtime_dir: Path, model: Path) -> None:
    """Until then every request fails with its words; after it the engine serves as before."""
    with supervised(runtime_dir, model) as served:
        await asyncio.to_thread(wait_ready, served, served.process)
        async with client_of(served.url) as client:
            expected = await client.ask(COMPLETIONS, GOOD)
            before = stats(served.url)["engine"]
            failed = [await client.ask(COMPLETIONS, {"prompt": FATAL_PROMPT, "max_tokens": 4})]
            failed += [await client.ask(COMPLETIONS, GOOD) for _ in range(2)]
            await asyncio.to_thread(wait_not_ready, served)
            await asyncio.to_thread(wait_ready, served, served.process)
            after = stats(served.url)["engine"]
            again = await client.ask(COMPLETIONS, GOOD)
        said = served.process.said()
    assert [reply.status for reply in failed] == [500] * 3
    assert all(WORDS in reply.body["error"]["message"] for reply in failed)
    assert (before["restarts"], after["restarts"]) == (0, 1)
    assert before["epoch"] != after["epoch"]
    assert (again.status, again.text) == (200, expected.text)
    assert "engine.device_lost why=" in said
    assert f"ended with status {EXIT_STUCK}" in said
