"""vLLM's `priority` over HTTP: what reaches the engine, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.serving import serving

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "!echo x"}]},
    "/v1/completions": {"prompt": "!echo x"},
    "/v1/responses": {"input": "!echo x"},
}


@pytest.mark.parametrize("path", list(BODIES))
async def test_a_low_number_is_urgent(runtime_dir: Path, path: str) -> None:
    """Clients say a low number for what is urgent, as in vLLM, and the wire a high one."""
    async with serving(runtime_dir) as served:
        for fields in ({}, {"priority": None}, {"priority": 7}, {"priority": -3}):
            assert (await served.answer(path, BODIES[path] | fields))[0] == 200
        assert [submit.priority for submit in served.engine.submits()] == [0, 0, -7, 3]


async def test_each_choice_has_it(runtime_dir: Path) -> None:
    """Choices of one request stay together."""
    async with serving(runtime_dir) as served:
        body = BODIES["/v1/completions"] | {"n": 2, "priority": 2}
        assert (await served.answer("/v1/completions", body))[0] == 200
        assert [submit.priority for submit in served.engine.submits()] == [-2, -2]


@pytest.mark.parametrize("priority", [1.5, "high", True, 2**53 + 1, [1]])
async def test_a_wrong_one_is_refused(runtime_dir: Path, priority: Any) -> None:
    """With the field at fault."""
    async with serving(runtime_dir) as served:
        body = BODIES["/v1/completions"] | {"priority": priority}
        status, reply = await served.answer("/v1/completions", body)
        assert (status, reply["error"]["param"]) == (400, "priority")
