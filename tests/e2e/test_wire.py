"""A9: what a client may do to the engine's socket, and what that does to others: nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgpack
import zmq

from protocol import codec
from protocol.endpoint import connect_requests, open_runtime_folder
from protocol.errors import ErrorCode
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    ClientInfo,
    Epoch,
    Goodbye,
    Hello,
    Ping,
    Rejected,
    Submit,
    SubmitId,
    TokenPrompt,
    Welcome,
)
from tests.e2e.client import CHAT, chat, client_of
from tests.e2e.cluster import MODEL_ID, Cluster, stats, wait_stats

ANSWER_LIMIT_MS = 20_000


class RawClient:
    """A DEALER that sends whatever it likes."""

    def __init__(self, socket: "zmq.Socket[bytes]", epoch: Epoch) -> None:
        self.socket = socket
        self.epoch = epoch

    def hello(self, version: int = PROTOCOL_VERSION) -> AnyFromEngine:
        """Says Hello; the engine's answer."""
        info = ClientInfo(name="raw", pid=1)
        self.socket.send(codec.encode(Hello(epoch=self.epoch, protocol_version=version, client=info)))
        return self.heard()

    def heard(self) -> AnyFromEngine:
        """The next message of the engine."""
        assert self.socket.poll(ANSWER_LIMIT_MS), "the engine does not answer"
        return codec.decode_from_engine(self.socket.recv())


@contextmanager
def raw_client(cluster: Cluster, name: bytes) -> Iterator[RawClient]:
    """A client of the engine's current epoch."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        folder = open_runtime_folder(cluster.runtime_dir)
        socket = connect_requests(context.socket(zmq.DEALER), folder, name)
        yield RawClient(socket, Epoch(stats(cluster.url)["engine"]["epoch"]))
    finally:
        context.destroy(linger=1_000)


def garbage(cluster: Cluster) -> None:
    """Sends everything that is wrong, and checks each answer."""
    with raw_client(cluster, b"raw-garbage") as raw:
        assert isinstance(raw.hello(), Welcome)
        bad_frames = [
            b"",
            b"\xc1\xff\x00 not msgpack",
            msgpack.packb([1, 2, 3]),
            msgpack.packb({"type": "launch_missiles", "epoch": raw.epoch}),
            msgpack.packb({"type": "ping"}),
            msgpack.packb({"type": "submit", "epoch": raw.epoch, "id": "bad/0", "prompt": 7}),
        ]
        for frame in bad_frames:
            raw.socket.send(frame)
            answer = raw.heard()
            assert isinstance(answer, Rejected), frame
            assert answer.code == ErrorCode.MALFORMED_FRAME
            assert answer.id == ("bad/0" if frame is bad_frames[-1] else None)
        raw.socket.send_multipart([b"two", b"frames"])
        assert isinstance(raw.heard(), Rejected)
        # The sender is still a client like any other.
        ids = codec.pack_ids([60, 61, 62])
        submit = Submit(
            epoch=raw.epoch,
            id=SubmitId("good/0"),
            group="good",
            model=MODEL_ID,
            prompt=TokenPrompt(ids=ids),
            max_tokens=1,
        )
        raw.socket.send(codec.encode(submit))
        assert raw.heard().rows[0].id == "good/0"  # type: ignore[union-attr]
    with raw_client(cluster, b"raw-version") as raw:
        goodbye = raw.hello(version=PROTOCOL_VERSION + 1)
        assert isinstance(goodbye, Goodbye)
        assert goodbye.reason == "version_mismatch"
    with raw_client(cluster, b"raw-oversize") as raw:
        raw.socket.send(b"x" * (codec.MAX_FRAME_BYTES + 1))
        # ZeroMQ drops the connection without a word; the client goes on with a fresh socket.
        assert not raw.socket.poll(500)
    with raw_client(cluster, b"raw-after-oversize") as raw:
        assert isinstance(raw.hello(), Welcome)
    with raw_client(cluster, b"raw-stale") as raw:
        assert isinstance(raw.hello(), Welcome)
        raw.socket.send(codec.encode(Ping(epoch="of another engine")))


async def test_garbage_harms_only_its_sender(cluster: Cluster) -> None:
    """Each wrong frame is answered or counted, and a stream that runs meanwhile is whole and unchanged."""
    async with client_of(cluster.url) as client:
        body = chat("Tell me about garbage on a bridge.", ignore_eos=True, max_tokens=cluster.tokens(fake=200, real=30))
        alone = await client.stream(CHAT, body)
        before = stats(cluster.url)["engine"]["counters"]
        beside, _ = await asyncio.gather(client.stream(CHAT, body), asyncio.to_thread(garbage, cluster))
        assert (beside.text, beside.events[-1]) == (alone.text, "[DONE]")

        def is_counted(found: dict) -> bool:
            counters = found["engine"]["counters"]
            return (
                counters["malformed_frames"] == before["malformed_frames"] + 7
                and counters["stale_messages"] == before["stale_messages"] + 1
            )

        await asyncio.to_thread(wait_stats, cluster.url, is_counted, "every wrong frame is counted")
