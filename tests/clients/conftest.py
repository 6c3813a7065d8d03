"""The servers that real clients are pointed at: the same cases over the FakeEngine and over a real one."""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.clients.conversations import build_speaking_model
from tests.e2e.cluster import MODEL_ID, Cluster, running_cluster

# Tools are told in the prompt, and the fake's tokens are about a letter each.
CONTEXT_TOKENS = 4_096
QUICK_READER = ("--prefill-tokens-per-turn", "256")


@dataclass(frozen=True, slots=True)
class Asked:
    """What every client asks. endless: a question whose answer goes on; json: one for the schema of the weather.

    call: one that is answered with a call of `weather`, which is_forced makes sure of.
    """

    url: str
    model: str
    question: str
    endless: str
    json: str
    call: str
    is_forced: bool
    most: int

    def as_arguments(self) -> dict[str, str | int]:
        """For a script."""
        return asdict(self)


@pytest.fixture(scope="session", params=["fake", pytest.param("real", marks=pytest.mark.real_model)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An engine and two frontends, shared by all clients of one kind."""
    with (
        tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name,
        running_cluster(
            request.param,
            Path(name),
            CONTEXT_TOKENS,
            engine_arguments=QUICK_READER if request.param == "fake" else (),
        ) as found,
    ):
        yield found


@pytest.fixture(scope="session", params=["fake", "real"])
def speaking(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server whose model takes its part in the conversations: scripted, or weights in the real engine."""
    with tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name:
        model = build_speaking_model(Path(name) / "m")
        fake = (*QUICK_READER, "--step-ms", "1", "--context-length", str(CONTEXT_TOKENS))
        with running_cluster(
            request.param,
            Path(name) / "r",
            context_tokens=None,
            engine_arguments=fake if request.param == "fake" else ("--model", str(model)),
            # The FakeEngine's template names no format.
            frontend_arguments=("--reasoning-parser", "think"),
        ) as found:
            yield found.url


@pytest.fixture(scope="session")
def asked(cluster: Cluster) -> Asked:
    """A script's text for the FakeEngine, plain questions for a model."""
    if cluster.kind == "fake":
        weather = '!echo {"city": "Oslo", "isCold": true}'
        call = '!echo <tool_call> {"name": "weather", "arguments": {"city": "Oslo"}} </tool_call>'
        return Asked(
            cluster.url, MODEL_ID, "!echo café 🦊 and 数える", "!count", weather, call, is_forced=False, most=64
        )
    return Asked(
        cluster.url,
        MODEL_ID,
        "What is the capital of France?",
        "Tell me a very long story about a river.",
        "Is it cold in Oslo? Answer as JSON.",
        "How is the weather in Oslo?",
        is_forced=True,
        most=12,
    )
