"""The engine's end of the wire over real sockets: hellos, leases, broken frames, peers that go."""

import errno
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import zmq

from engine.mailbox import CancelHeard, ClientLost, ControlHeard, Mailbox, SubmitHeard
from engine.model.tokenizer_files import TokenizerFiles
from engine.prefix.store import Dropped
from protocol.codec import MAX_FRAME_BYTES, decode_from_engine, encode, pack_ids
from protocol.endpoint import bind_requests, connect_requests, open_runtime_folder
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyFromEngine,
    AnyToEngine,
    Cancel,
    ClientInfo,
    Control,
    ControlDone,
    Epoch,
    FetchTokenizer,
    Goodbye,
    Hello,
    Leave,
    ParserNames,
    Ping,
    Rejected,
    RowDelta,
    Step,
    Submit,
    SubmitId,
    TokenizerChunk,
    TokenPrompt,
    Welcome,
)
from protocol.tokenizer_hash import NamedFile
from tests.fakes.loop_driver import facts_of
from tests.fakes.models import tiny_model

EPOCH = Epoch("now")
# How long a test waits for what must come; far above what it takes.
WAIT_MS = 60_000


class _Wire:
    """A mailbox with real clients."""

    def __init__(self, path: Path) -> None:
        self.sockets: list[zmq.Socket[bytes]] = []
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.folder = open_runtime_folder(path)
        self.router = bind_requests(self.context, self.folder)
        files = TokenizerFiles((NamedFile("tokenizer.json", b"{}"),))
        welcome = Welcome(
            epoch=EPOCH,
            protocol_version=PROTOCOL_VERSION,
            facts=facts_of(tiny_model("llama")),
            tokenizer=files.manifest,
        )
        self.mailbox = Mailbox(self.router, welcome, files, lease_s=15.0)

    def client(self, identity: bytes = b"one") -> "zmq.Socket[bytes]":
        socket = connect_requests(self.context.socket(zmq.DEALER), self.folder, identity)
        self.sockets.append(socket)
        return socket

    def greeted(self, identity: bytes = b"one") -> "zmq.Socket[bytes]":
        """A client that has said Hello and was welcomed."""
        socket = self.client(identity)
        self.send(socket, hello())
        assert self.hear() == []
        assert isinstance(answer(socket), Welcome)
        return socket

    def send(self, socket: "zmq.Socket[bytes]", message: AnyToEngine) -> None:
        socket.send(encode(message))

    def hear(self, now: float | None = None) -> list[Any]:
        """What the loop hears once something has arrived."""
        return self.mailbox.hear(time.monotonic() if now is None else now, WAIT_MS)


def hello(**changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "epoch": EPOCH,
        "protocol_version": PROTOCOL_VERSION,
        "client": ClientInfo(name="test", pid=1),
    }
    return Hello(**{**fields, **changes})


def submit(id_: str = "a", epoch: str = EPOCH) -> Submit:
    return Submit(epoch=epoch, id=SubmitId(id_), group="g", model="model", prompt=TokenPrompt(ids=pack_ids([1, 2])))


def answer(socket: "zmq.Socket[bytes]") -> AnyFromEngine:
    assert socket.poll(WAIT_MS), "the engine did not answer"
    return decode_from_engine(socket.recv())


@pytest.fixture
def wire() -> Iterator[_Wire]:
    """A mailbox in a runtime folder of its own."""
    with tempfile.TemporaryDirectory(prefix="cv") as path:
        Path(path).chmod(0o700)
        wire = _Wire(Path(path))
        yield wire
        for socket in (*wire.sockets, wire.router):
            socket.close(linger=0)
        wire.context.term()


def test_hello_is_welcomed_with_the_facts(wire: _Wire) -> None:
    """A client that speaks the version gets facts and tokenizer manifest, and holds a lease."""
    socket = wire.client()
    wire.send(socket, hello())
    wire.hear()
    welcome = answer(socket)
    assert isinstance(welcome, Welcome)
    assert (welcome.epoch, welcome.facts.id) == (EPOCH, "model")
    assert list(wire.mailbox.clients) == [b"one"]


def test_another_version_is_sent_away(wire: _Wire) -> None:
    """A9: a client of another protocol version is told so and holds no lease."""
    socket = wire.client()
    wire.send(socket, hello(protocol_version=PROTOCOL_VERSION + 1))
    wire.hear()
    goodbye = answer(socket)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason == "version_mismatch"
    assert wire.mailbox.clients == {}


def test_submits_and_cancels_reach_the_loop_in_order(wire: _Wire) -> None:
    """What a client sends arrives whole and in order, with its identity."""
    socket = wire.greeted()
    wire.send(socket, submit("a"))
    wire.send(socket, Cancel(epoch=EPOCH, id=SubmitId("a"), reason="gone"))
    wire.send(socket, submit("b"))
    heard: list[Any] = []
    while len(heard) < 3:
        heard += wire.hear()
    assert [type(event) for event in heard] == [SubmitHeard, CancelHeard, SubmitHeard]
    assert {event.client for event in heard} == {b"one"}


def test_a_waiting_mailbox_wakes_at_the_first_message(wire: _Wire) -> None:
    """B12: a long wait ends with the message, not with its time."""
    socket = wire.greeted()
    sender = threading.Timer(0.05, lambda: wire.send(socket, submit()))
    began = time.monotonic()
    sender.start()
    heard = wire.mailbox.hear(began, 60_000)
    sender.join()
    assert [type(event) for event in heard] == [SubmitHeard]


def test_another_epochs_messages_are_dropped_and_counted(wire: _Wire) -> None:
    """A message that was queued for an engine that has died does not run here."""
    socket = wire.greeted()
    wire.send(socket, submit("old", epoch="before"))
    assert wire.hear() == []
    assert wire.mailbox.stale_messages == 1


def test_a_client_without_a_lease_is_told_to_say_hello(wire: _Wire) -> None:
    """A woken client whose lease is over learns that its rows are gone."""
    socket = wire.client()
    wire.send(socket, submit())
    assert wire.hear() == []
    goodbye = answer(socket)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason == "lease_lost"


@pytest.mark.parametrize(
    ("frame", "id_"),
    [
        (b"", None),
        (b"\xc1", None),
        (b"\x93\x01\x02\x03", None),
        (b"\x91" * 3_000, None),
        (msgpack.packb({"type": "no such tag", "id": "x"}), "x"),
        (msgpack.packb({"type": "submit", "epoch": "now", "id": "x", "group": 3}), "x"),
        (msgpack.packb({"type": "submit", "epoch": "now", "id": "x" * 10_000}), None),
    ],
)
def test_a_broken_frame_costs_its_sender_an_error_only(wire: _Wire, frame: bytes, id_: str | None) -> None:
    """A9: malformed frames are answered and counted; another client's messages arrive."""
    bad, good = wire.client(b"bad"), wire.greeted(b"good")
    bad.send(frame)
    wire.hear()
    rejected = answer(bad)
    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.id) == (ErrorCode.MALFORMED_FRAME, id_)
    assert wire.mailbox.malformed_frames == 1
    wire.send(good, submit())
    assert [type(event) for event in wire.hear()] == [SubmitHeard]


def test_a_message_of_several_frames_is_malformed(wire: _Wire) -> None:
    """A9: the wire has one frame per message."""
    socket = wire.client()
    socket.send_multipart([b"a", b"b"])
    wire.hear()
    assert isinstance(answer(socket), Rejected)


def test_tokenizer_files_are_fetched_by_name(wire: _Wire) -> None:
    """A piece of a file, or a rejection for a name there is none of."""
    socket = wire.greeted()
    wire.send(socket, FetchTokenizer(epoch=EPOCH, name="tokenizer.json"))
    wire.hear()
    assert isinstance(piece := answer(socket), TokenizerChunk)
    assert (piece.data, piece.is_last) == (b"{}", True)
    wire.send(socket, FetchTokenizer(epoch=EPOCH, name="../secret"))
    wire.hear()
    assert isinstance(answer(socket), Rejected)


def test_control_is_handed_on_and_answered_by_its_id(wire: _Wire) -> None:
    """The loop carries it out; the answer says whether that went well."""
    socket = wire.greeted()
    wire.send(socket, Control(epoch=EPOCH, id="c1", command="flush_prefixes"))
    (heard,) = wire.hear()
    assert isinstance(heard, ControlHeard)
    wire.mailbox.control_done(heard, "no")
    assert answer(socket) == ControlDone(epoch=EPOCH, id="c1", error="no")
    wire.mailbox.control_done(heard, None, Dropped(3, 4_000))
    assert answer(socket) == ControlDone(epoch=EPOCH, id="c1", dropped_entries=3, dropped_bytes=4_000)


def test_silence_ends_the_lease(wire: _Wire) -> None:
    """A client that is silent for the lease is lost; a ping that waits in the socket is heard first."""
    silent, alive = wire.greeted(b"silent"), wire.greeted(b"alive")
    wire.send(alive, Ping(epoch=EPOCH))
    later = time.monotonic() + 16.0
    assert wire.router.poll(WAIT_MS)
    assert wire.hear(later) == [ClientLost(b"silent", is_reachable=True)]
    assert list(wire.mailbox.clients) == [b"alive"]
    wire.mailbox.end_lease(b"silent")
    assert isinstance(answer(silent), Goodbye)


def test_who_leaves_is_gone_at_once(wire: _Wire) -> None:
    """Its rows end, no lease runs out, and what follows is answered as from a stranger."""
    socket = wire.greeted()
    wire.send(socket, submit())
    wire.send(socket, Leave(epoch=EPOCH))
    heard: list[Any] = []
    while len(heard) < 2:
        heard += wire.hear()
    assert [type(event) for event in heard] == [SubmitHeard, ClientLost]
    assert heard[1] == ClientLost(b"one", is_reachable=False)
    assert wire.mailbox.clients == {}
    assert wire.mailbox.hear(time.monotonic() + 60.0, 0) == []
    wire.send(socket, Ping(epoch=EPOCH))
    assert wire.hear() == []
    assert isinstance(answer(socket), Goodbye)


def test_a_stranger_may_leave(wire: _Wire) -> None:
    """It is told that it has no lease, and nothing else happens."""
    socket = wire.client()
    wire.send(socket, Leave(epoch=EPOCH))
    assert wire.hear() == []
    assert isinstance(answer(socket), Goodbye)


def test_a_ping_says_how_replies_are_read(wire: _Wire) -> None:
    """The last one counts; before the first nothing is known."""
    socket = wire.greeted(b"one")
    told = [wire.mailbox.clients[b"one"].parsers]
    for parsers in (None, ParserNames(tools="hermes"), ParserNames()):
        wire.send(socket, Ping(epoch=EPOCH, parsers=parsers))
        assert wire.hear() == []
        told.append(wire.mailbox.clients[b"one"].parsers)
    assert told == [None, None, ParserNames(tools="hermes"), ParserNames()]


def test_a_gone_client_is_noticed_at_the_next_send(wire: _Wire) -> None:
    """A7: a send to a closed peer never blocks or raises: the client is lost and the loop hears it."""
    socket = wire.greeted()
    socket.close(linger=0)
    step = Step(epoch=EPOCH, step=1, rows=())
    deadline = time.monotonic() + 60
    while b"one" in wire.mailbox.clients:
        wire.mailbox.tell(b"one", step)
        assert time.monotonic() < deadline
    assert wire.mailbox.hear(time.monotonic(), 0) == [ClientLost(b"one", is_reachable=False)]


def test_a_client_that_cannot_be_told_loses_its_lease(wire: _Wire) -> None:
    """A message that no frame holds costs its client its rows, not the engine its life; others hear on."""
    unlucky, other = wire.greeted(b"unlucky"), wire.greeted(b"other")
    delta = RowDelta(id=SubmitId("a"), tokens=bytes(MAX_FRAME_BYTES))
    wire.mailbox.tell(b"unlucky", Step(epoch=EPOCH, step=1, rows=(delta,)))
    wire.mailbox.tell(b"other", Step(epoch=EPOCH, step=1, rows=()))
    assert wire.mailbox.hear(time.monotonic(), 0) == [ClientLost(b"unlucky", is_reachable=True)]
    assert list(wire.mailbox.clients) == [b"other"]
    wire.mailbox.end_lease(b"unlucky")
    goodbye = answer(unlucky)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason == "lease_lost"
    assert isinstance(answer(other), Step)
    wire.send(unlucky, hello())
    assert wire.hear() == []
    assert isinstance(answer(unlucky), Welcome)


def test_rows_that_no_frame_holds_are_their_senders_to_sort_out(wire: _Wire) -> None:
    """A Step of several rows need not cost its client the lease; lose() is there for when nothing else is left."""
    socket = wire.greeted()
    delta = RowDelta(id=SubmitId("a"), tokens=bytes(MAX_FRAME_BYTES))
    with pytest.raises(ProtocolError, match="over the limit"):
        wire.mailbox.tell_step(b"one", Step(epoch=EPOCH, step=1, rows=(delta,)))
    wire.mailbox.tell_step(b"one", Step(epoch=EPOCH, step=2, rows=()))
    assert answer(socket) == Step(epoch=EPOCH, step=2, rows=())
    assert wire.mailbox.hear(time.monotonic(), 0) == []
    for _ in range(2):
        wire.mailbox.lose(b"one")
    assert wire.mailbox.hear(time.monotonic(), 0) == [ClientLost(b"one", is_reachable=True)]


def test_a_send_that_fails_in_any_other_way_costs_its_client(
    wire: _Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the engine: what is wrong with the socket for all is found when it is heard."""
    wire.greeted()

    def failing(*_: object) -> None:
        raise zmq.ZMQError(errno.EMSGSIZE)

    monkeypatch.setattr(wire.mailbox, "_socket", SimpleNamespace(send_multipart=failing))
    wire.mailbox.tell_step(b"one", Step(epoch=EPOCH, step=1, rows=()))
    assert list(wire.mailbox.clients) == []
    (record,) = [record for record in caplog.records if record.message == "client.lost"]
    assert record.__dict__["reason"] == "Message too long"


def test_a_full_client_is_lost_instead_of_waited_for(wire: _Wire) -> None:
    """A peer that stops reading is dropped once its queue is full; the engine does not wait."""
    socket = wire.client()
    wire.send(socket, hello())
    wire.hear()
    step = Step(epoch=EPOCH, step=1, rows=())
    for _ in range(200_000):
        wire.mailbox.tell(b"one", step)
        if b"one" not in wire.mailbox.clients:
            break
    assert wire.mailbox.hear(time.monotonic(), 0) == [ClientLost(b"one", is_reachable=False)]


def test_goodbye_reaches_every_client(wire: _Wire) -> None:
    """A clean stop is told."""
    sockets = [wire.greeted(b"one"), wire.greeted(b"two")]
    wire.mailbox.say_goodbye("bye")
    goodbyes = [answer(socket) for socket in sockets]
    assert [type(goodbye) for goodbye in goodbyes] == [Goodbye, Goodbye]
