"""Requests that outgrow the memory for KV caches, as clients see them: pauses, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.random_model import RandomModelSpec, build_random_model
from tests.e2e.client import COMPLETIONS, Client, client_of
from tests.e2e.cluster import Cluster, running_cluster, stats

BODY = {"max_tokens": 400, "ignore_eos": True, "temperature": 0.8, "repetition_penalty": 1.1, "logprobs": 1}
REQUESTS: list[dict[str, Any]] = [
    {**BODY, "prompt": [5 + (number * 31 + at * 7) % 200 for at in range(180 + number)], "seed": number}
    for number in range(5)
]
# Room for two of them at their full length, and for all while they are short.
TIGHT = ("--kv-cache-memory-bytes", "1300000", "--prefill-step-size", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_random_model(tmp_path_factory.mktemp("models") / "tiny", RandomModelSpec())


async def _said(client: Client, body: dict[str, Any], *, is_stream: bool) -> tuple[Any, ...]:
    """Text, tokens' log-probabilities, how it ended and what it counted."""
    if not is_stream:
        reply = await client.ask(COMPLETIONS, body)
        (choice,) = reply.body["choices"]
        usage = reply.body["usage"]
        return choice["text"], choice["logprobs"]["tokens"], choice["finish_reason"], usage["completion_tokens"]
    stream = await client.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    frames = [event for event in stream.events if isinstance(event, dict)]
    tokens = [
        token
        for frame in frames
        for choice in frame["choices"]
        for token in (choice.get("logprobs") or {}).get("tokens", ())
    ]
    (reason,) = stream.finish_reasons
    return stream.text, tokens, reason, frames[-1]["usage"]["completion_tokens"]


async def _all_said(cluster: Cluster) -> list[tuple[Any, ...]]:
    async with client_of(cluster.url) as client:
        asked = (_said(client, body, is_stream=index % 2 == 0) for index, body in enumerate(REQUESTS))
        return await asyncio.gather(*asked)


async def test_replies_are_the_same_whether_or_not_they_gave_way(model: Path, tmp_path: Path) -> None:
    """D3, E1: five at once in room for two, streamed and not: each has the words, scores, counts of plenty."""
    said: list[list[tuple[Any, ...]]] = []
    counts: list[int] = []
    for number, arguments in enumerate([("--prefill-step-size", "16"), TIGHT]):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        with running_cluster("real", folder, 1_024, engine_arguments=("--model", str(model), *arguments)) as cluster:
            said.append(await _all_said(cluster))
            engine = stats(cluster.url)["engine"]
            counts.append(engine["counters"]["preemptions"])
            assert engine["memory"]["ledger_bytes"] <= engine["memory"]["budget_bytes"]
    assert said[0] == said[1]
    assert all(each[2:] == ("length", 400) for each in said[0])
    assert counts[0] == 0 < counts[1]
