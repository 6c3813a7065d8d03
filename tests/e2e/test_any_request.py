"""Schemathesis reads the server's own OpenAPI document and sends what fits it, and what does not."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.fakes.serving import serving

COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"


# examples: for each operation.
@pytest.mark.parametrize(
    ("examples", "least"),
    [(10, 200), pytest.param(100, 2_000, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])],
)
async def test_no_request_is_an_internal_error(runtime_dir: Path, examples: int, least: int) -> None:
    """Bodies, paths and headers, sound and broken, of every route: none gets a 5xx. Hundreds; thousands in the soak."""
    engine = {"context_length": 128, "step_ms": 0.2, "prefill_tokens_per_turn": 128}
    async with serving(runtime_dir, **engine) as served:
        options = ["--checks", "not_a_server_error", "--phases", "fuzzing", "--max-examples", str(examples)]
        options += ["--seed", "7", "--request-timeout", "20", "--no-color"]
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", COMMAND, "run", f"{served.url}/openapi.json", *options],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=runtime_dir,
        )
        output, _ = await process.communicate()
        said = output.decode()
        assert process.returncode == 0, said
        found = re.search(r"(\d+) generated, (\d+) passed", said)
        assert found is not None, said
        assert int(found[1]) == int(found[2]) >= least
        # Requests that are served reach the engine: not all of it is refused at the door.
        assert served.engine.submits() != []
        assert (await served.get("/health"))[0] == 200
