"""Constrained replies over HTTP: what is refused is a 400 in the client's words, what is taken fits its schema."""

import asyncio
import json

from tests.e2e.client import CHAT, COMPLETIONS, chat, client_of
from tests.e2e.cluster import Cluster

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "maximum": 10**8}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}


async def test_a_schema_that_does_not_compile(cluster: Cluster) -> None:
    """D7: 400 under the client's own field, with the compiler's words; streamed and not, and asked again."""
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "uncompilable"}}}
    async with client_of(cluster.url) as client:
        replies = [
            await client.ask(CHAT, chat("x", response_format=bad)),
            await client.ask(CHAT, chat("x", response_format=bad, stream=True)),
            await client.ask(COMPLETIONS, {"prompt": "x", "guided_json": {"type": "uncompilable"}}),
        ]
    for reply, field in zip(replies, ["response_format", "response_format", "guided_json"], strict=True):
        error = reply.body["error"]
        assert (reply.status, error["code"], error["param"]) == (400, "invalid_request", field)
        assert "uncompilable" in error["message"]
        assert f"`{field}`" in error["message"]


async def test_constrained_replies_beside_free_ones(cluster: Cluster) -> None:
    """D6: schema rows are valid, and the free row beside them says what it says alone."""
    question = chat("What is the capital of France?", max_tokens=16)
    async with client_of(cluster.url) as client:
        alone = await client.ask(CHAT, question)
        asked = [chat("Name a city.", response_format=FORMAT, temperature=1, seed=seed) for seed in range(4)]
        free, *constrained = await asyncio.gather(*(client.ask(CHAT, body) for body in [question, *asked]))
        choice = await client.ask(COMPLETIONS, {"prompt": "Is it?", "structured_outputs": {"choice": ["yes", "no"]}})
    assert free.text == alone.text
    assert {reply.status for reply in constrained} == {200}
    if cluster.kind == "real":
        assert choice.text in ("yes", "no")
        for reply in constrained:
            assert set(json.loads(reply.text)) == {"city", "people"}
            assert reply.finish_reason == "stop"
