"""The `llm` command: a model in its list of further OpenAI models, as its documentation has it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Asked
from tests.clients.conversations import CONVERSATIONS, DESCRIPTION, RESULTS
from tests.e2e.cluster import MODEL_ID, Cluster, stats
from tests.e2e.waits import one_cancel_here

LLM = [sys.executable, "-m", "llm"]


def starter(folder: Path, url: str, model: str, **more: Any) -> "Callable[..., subprocess.Popen[str]]":
    """Starts the command with a folder of its own. more: about the model."""
    described = {
        "model_id": "convoy",
        "model_name": model,
        "api_base": f"{url}/v1",
        "supports_schema": True,
        "supports_tools": True,
    }
    # JSON is YAML, too.
    (folder / "extra-openai-models.yaml").write_text(json.dumps([described | more]))

    def started(*arguments: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "any", "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            [*LLM, "-m", "convoy", "--no-log", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


@pytest.fixture
def begin(asked: Asked, tmp_path: Path) -> "Callable[..., subprocess.Popen[str]]":
    """Starts it for the server that is asked."""
    return starter(tmp_path, asked.url, asked.model)


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
    before = stats(asked.url)
    process = begin("-o", "max_tokens", "400", asked.endless)
    assert process.stdout is not None
    assert process.stdout.read(5) != ""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    one_cancel_here(asked.url, before)


def test_errors_are_told(begin: "Callable[..., subprocess.Popen[str]]", asked: Asked) -> None:
    """The server's own words end the command."""
    process = begin("-o", "temperature", "1.5", "-o", "top_p", "0", asked.question)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors.startswith("Error: ")
    assert "`top_p`" in errors


# The command runs the function itself, sends what it returned, and goes on until there is an answer.
FUNCTIONS = f"""
def weather(city: str) -> str:
    "{DESCRIPTION}"
    print(city, file=open("called", "a"))
    return {RESULTS}[city]
"""


@pytest.mark.parametrize(
    ("name", "options", "about"),
    [
        ("one call", (), {}),
        ("one call", ("--no-stream",), {}),
        ("two calls at once", (), {}),
        ("a call behind a thought", (), {}),
        ("a call behind a thought", (), {"responses": True}),
        ("two calls at once", ("--no-stream",), {"responses": True}),
    ],
)
def test_a_tool_is_called_and_the_answer_found(
    speaking: str, tmp_path: Path, name: str, options: tuple[str, ...], about: dict[str, Any]
) -> None:
    """--functions: Python's own functions are tools, on both of OpenAI's APIs."""
    conversation, called = CONVERSATIONS[name], tmp_path / "called"
    functions = FUNCTIONS.replace('"called"', repr(str(called)))
    begin = starter(tmp_path, speaking, MODEL_ID, **about)
    process = begin("--functions", functions, *options, conversation.question)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out.rstrip("\n")) == (0, conversation.answer), errors
    assert tuple(called.read_text().split()) == conversation.cities
    # Of chats it shows no thoughts.
    assert errors.strip() == (conversation.thought if about else "")
