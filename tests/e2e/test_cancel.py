"""Clients that go, stop reading, or lose their frontend: their rows end, and nobody else notices."""

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import CHAT, COMPLETIONS, Client, Stream, chat, client_of
from tests.e2e.cluster import MAX_ROWS, Cluster, Frontend, cancels_of, running_frontend, stats, wait_ready, wait_stats
from tests.e2e.waits import rows_are
from tests.fakes.scripts import UNREAD
from tests.fakes.serving import decoded_events

STORY = "Tell me a long story about a fox."
LONG_PROMPT = {"prompt": [60 + number % 100 for number in range(480)], "ignore_eos": True}


def endless(cluster: Cluster, number: int) -> dict[str, Any]:
    """A chat that runs until it is cancelled; in a model that takes some time for it, to the context's end."""
    return chat(f"{'!linger ' if cluster.kind == 'fake' else ''}{STORY} Chapter {number}.", ignore_eos=True)


def slowly_read(cluster: Cluster) -> dict[str, Any]:
    """A completion whose prompt takes a model seconds, and the scripted engine for ever."""
    return {**LONG_PROMPT, "prompt": UNREAD} if cluster.kind == "fake" else LONG_PROMPT


async def is_cancelled_once(cluster: Cluster, before: dict[str, Any], count: int = 1) -> None:
    """Exactly `count` Cancels left the first frontend, and the engine cancelled as many rows."""

    def is_seen(found: dict[str, Any]) -> bool:
        return found["engine"]["counters"]["cancelled"] >= before["engine"]["counters"]["cancelled"] + count

    found = await asyncio.to_thread(wait_stats, cluster.url, is_seen, "the row is cancelled")
    assert found["engine"]["counters"]["cancelled"] == before["engine"]["counters"]["cancelled"] + count
    assert cancels_of(found) == cancels_of(before) + count


@pytest.mark.parametrize("is_stream", [True, False])
async def test_client_gone_while_decoding(cluster: Cluster, is_stream: bool) -> None:
    """A5: streamed or not, one Cancel, the row is gone; the sibling ends as it would have."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        leaver = asyncio.create_task(client.begin(CHAT, {**endless(cluster, 1), "stream": is_stream}))
        await rows_are(cluster.url, decoding=1)
        body = chat(STORY, ignore_eos=True, max_tokens=cluster.tokens(fake=100, real=40), stream=True)
        sibling = await client.begin(CHAT, body)
        await sibling.content.readuntil(b"\n\n")
        if is_stream:
            response = await leaver
            await response.content.readuntil(b"\n\n")
            response.close()
        else:
            leaver.cancel()
        await is_cancelled_once(cluster, before)
        stream = Stream(decoded_events(await sibling.read()))
        assert (stream.finish_reasons, stream.events[-1]) == (["length"], "[DONE]")


async def test_client_gone_while_prefilling(cluster: Cluster) -> None:
    """A5: a request that is not streamed and still prefills is cancelled when its client goes."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        leaver = asyncio.create_task(client.begin(COMPLETIONS, {**slowly_read(cluster), "cache_salt": "prefilling"}))
        await rows_are(cluster.url, prefilling=1)
        leaver.cancel()
        await is_cancelled_once(cluster, before)
        await rows_are(cluster.url, prefilling=0, decoding=0, waiting=0)


async def test_client_gone_while_queued(cluster: Cluster) -> None:
    """A5: a request beyond the cap waits, and is cancelled there."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        responses = await asyncio.gather(
            *(client.begin(CHAT, {**endless(cluster, number), "stream": True}) for number in range(MAX_ROWS))
        )
        queued = asyncio.create_task(client.begin(CHAT, endless(cluster, 99)))
        # One of the others waits, too, until its prompt is begun.
        await rows_are(cluster.url, decoding=MAX_ROWS, waiting=1)
        queued.cancel()
        await is_cancelled_once(cluster, before)
        await rows_are(cluster.url, waiting=0)
        for response in responses:
            response.close()
        await is_cancelled_once(cluster, before, 1 + MAX_ROWS)


async def test_no_cancel_after_a_normal_end(cluster: Cluster) -> None:
    """A5: replies that end by themselves, and clients that leave then, send nothing."""
    async with client_of(cluster.url) as client:
        before = stats(cluster.url)
        assert (await client.ask(CHAT, chat("Hello.", max_tokens=3))).status == 200
        await client.stream(CHAT, chat("Hello.", max_tokens=3))

    def have_finished(found: dict[str, Any]) -> bool:
        return found["engine"]["counters"]["finished"] == before["engine"]["counters"]["finished"] + 2

    after = await asyncio.to_thread(wait_stats, cluster.url, have_finished, "both rows have finished")
    assert after["frontend"]["cancels_sent"] == before["frontend"]["cancels_sent"]
    assert after["engine"]["counters"]["cancelled"] == before["engine"]["counters"]["cancelled"]


async def test_two_frontends_share_one_batch(cluster: Cluster) -> None:
    """A7: both tell of the same engine and its rows; a killed one takes only its own rows along."""
    with running_frontend(cluster.runtime_dir) as third:
        await asyncio.to_thread(wait_ready, third, cluster.engine)
        async with client_of(cluster.url) as client, client_of(third.url) as doomed:
            tokens = cluster.tokens(fake=440, real=60)
            bodies = [chat(f"{STORY} {number}", ignore_eos=True, max_tokens=tokens) for number in range(2)]
            streams = [asyncio.create_task(client.stream(CHAT, body)) for body in bodies]
            responses = [await doomed.begin(CHAT, {**endless(cluster, number), "stream": True}) for number in range(2)]
            for url in (cluster.url, third.url, cluster.frontends[1].url):
                await rows_are(url, decoding=4)
            epochs = {stats(url)["engine"]["epoch"] for url in (cluster.url, third.url, cluster.frontends[1].url)}
            assert len(epochs) == 1
            third.process.kill()
            await rows_are(cluster.url, decoding=2)
            whole: list[Stream] = await asyncio.gather(*streams)
            for response in responses:
                response.close()
    assert [(stream.finish_reasons, stream.events[-1]) for stream in whole] == [(["length"], "[DONE]")] * 2


async def test_consumer_that_stops_reading(cluster: Cluster) -> None:
    """A10: its rows are cancelled in the end; a stream beside it, on the same frontend, goes on as ever."""
    with running_frontend(cluster.runtime_dir, served_name="*") as frontend:
        await asyncio.to_thread(wait_ready, frontend, cluster.engine)
        async with client_of(frontend.url) as client, slow_client_of(frontend) as slow:
            # A long model name makes long frames: the buffers are full after few tokens.
            body = {"prompt": [f"{STORY} {number}" for number in range(4)], "ignore_eos": True, "model": "m" * 8_000}
            response = await slow.begin(COMPLETIONS, {**body, "stream": True})
            assert response.status == 200
            assert response.connection is not None
            assert response.connection.transport is not None
            response.connection.transport.pause_reading()  # type: ignore[attr-defined]
            sibling = await client.stream(CHAT, chat(STORY, ignore_eos=True, max_tokens=25))
            found = await asyncio.to_thread(wait_stats, frontend.url, lambda found: cancels_of(found) == 4, "4 Cancels")
            await rows_are(frontend.url, decoding=0)
            response.close()
    assert (sibling.finish_reasons, sibling.events[-1]) == (["length"], "[DONE]")
    assert found["frontend"]["rows"] == 0


def slow_client_of(frontend: Frontend) -> Any:
    """A client whose kernel takes in very little before it reads."""

    def small_socket(address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        return made

    return _SlowClient(frontend.url, aiohttp.TCPConnector(socket_factory=small_socket))


class _SlowClient:
    """The session and its Client as one block."""

    def __init__(self, url: str, connector: aiohttp.TCPConnector) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(connector=connector)

    async def __aenter__(self) -> Client:
        return Client(self._session, self._url)

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
