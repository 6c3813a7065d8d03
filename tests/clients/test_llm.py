"""The `llm` command: a model in its list of further OpenAI models, as its documentation has it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import Asked
from tests.e2e.cluster import Cluster, stats, wait_stats

LLM = [sys.executable, "-m", "llm"]


@pytest.fixture
def begin(asked: Asked, tmp_path: Path) -> "Callable[..., subprocess.Popen[str]]":
    """Starts the command with a folder of its own."""
    model = {
        "model_id": "convoy",
        "model_name": asked.model,
        "api_base": f"{asked.url}/v1",
        "supports_schema": True,
    }
    # JSON is YAML, too.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model]))

    def started(*arguments: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "any", "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            [*LLM, "-m", "convoy", "--no-log", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


def ended(process: "subprocess.Popen[str]") -> str:
    """What it printed, once it has ended well."""
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return out.rstrip("\n")


def test_streamed_and_whole_are_the_same(begin: "Callable[..., subprocess.Popen[str]]", asked: Asked) -> None:
    """With and without --no-stream."""
    limit = ("-o", "max_tokens", str(asked.most), "-o", "temperature", "0")
    # One after the other: two first runs would both set up the command's folder.
    text = ended(begin(*limit, asked.question))
    assert text == ended(begin(*limit, "--no-stream", asked.question))
    assert text


def test_a_schema_gives_an_object(
    begin: "Callable[..., subprocess.Popen[str]]", asked: Asked, cluster: Cluster
) -> None:
    """--schema holds a model to it."""
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Lima"]}, "isCold": {"type": "boolean"}},
        "required": ["city", "isCold"],
    }
    found = json.loads(ended(begin("--schema", json.dumps(schema), "-o", "max_tokens", "60", asked.json)))
    assert {type(value) for value in found.values()} == {str, bool}
    assert cluster.kind == "real" or found == {"city": "Oslo", "isCold": True}


def test_ctrl_c_ends_the_row(begin: "Callable[..., subprocess.Popen[str]]", asked: Asked) -> None:
    """Who interrupts the command frees the engine."""
    before = stats(asked.url)["frontend"]["cancels_sent"].get("gone", 0)
    process = begin("-o", "max_tokens", "400", asked.endless)
    assert process.stdout is not None
    assert process.stdout.read(5) != ""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    found = wait_stats(asked.url, lambda seen: seen["frontend"]["rows"] == 0, "the row is gone")
    assert found["frontend"]["cancels_sent"]["gone"] == before + 1
