"""Schemathesis reads the server's own OpenAPI document and sends what fits it, and what does not."""

import asyncio
import re
import sys
from pathlib import Path

from tests.fakes.serving import serving

# For each operation; by hand with 100 and more.
EXAMPLES = 10
COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"


async def test_no_request_is_an_internal_error(runtime_dir: Path) -> None:
    """Hundreds of bodies, paths and headers, sound and broken, of every route: none gets a 5xx."""
    engine = {"context_length": 128, "step_ms": 0.2, "prefill_tokens_per_turn": 128}
    async with serving(runtime_dir, **engine) as served:
        options = ["--checks", "not_a_server_error", "--phases", "fuzzing", "--max-examples", str(EXAMPLES)]
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
        assert int(found[1]) == int(found[2]) > 200
        # Requests that are served reach the engine: not all of it is refused at the door.
        assert served.engine.submits() != []
        assert (await served.get("/health"))[0] == 200
