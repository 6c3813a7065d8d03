"""The link to the engine: readiness, epochs, tokenizer fetch, judgement by heartbeats."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from frontend.engine_client import EngineClient
from frontend.errors import RequestError
from frontend.model_text import load_model_text
from frontend.stream import RowFailure, RowMailbox
from protocol.codec import pack_ids
from protocol.endpoint import open_runtime_folder
from protocol.errors import ErrorCode
from protocol.messages import (
    PROTOCOL_VERSION,
    ClientInfo,
    FetchTokenizer,
    Finish,
    Hello,
    Leave,
    ModelFacts,
    ParserNames,
    Ping,
    Submit,
    SubmitId,
    TokenPrompt,
)
from tests.fakes.deadline import until
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.fake_settings import FakeSettings

# How long a test waits for what must come; far above what it takes.
PATIENCE_S = 60.0


@asynccontextmanager
async def following(runtime_dir: Path) -> AsyncIterator[EngineClient]:
    """A client that runs for the length of the block."""
    client = EngineClient(open_runtime_folder(runtime_dir), ClientInfo(name="test", pid=1), load_model_text)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.run())
        try:
            yield client
        finally:
            task.cancel()


def settings(runtime_dir: Path, **changes: object) -> FakeSettings:
    return FakeSettings(runtime_dir=str(runtime_dir), **changes)  # type: ignore[arg-type]


def make_submit(engine: FakeEngine, name: str, text: str, *, max_tokens: int | None = None) -> Submit:
    ids = engine.tokenizer.encode(text).ids
    return Submit(
        epoch=engine.epoch,
        id=SubmitId(f"{name}/0"),
        group=name,
        model="m",
        prompt=TokenPrompt(ids=pack_ids(ids)),
        max_tokens=max_tokens,
    )


async def end_of(mailbox: RowMailbox) -> tuple[list[int], Finish | RowFailure]:
    """All ids and the end of a row."""
    ids: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            news = mailbox.take()
            if news is None:
                mailbox._bell.clear()
                await mailbox._bell.wait()
                continue
            ids += news.ids
            if news.end is not None:
                return ids, news.end


async def test_not_ready_without_engine(runtime_dir: Path) -> None:
    """With no engine in the folder a request is refused after the wait, with the phase."""
    async with following(runtime_dir) as client:
        with pytest.raises(RequestError) as caught:
            await client.wait_ready(0.05)
    assert (caught.value.code, caught.value.status) == (ErrorCode.NOT_READY, 503)
    assert "unreachable" in caught.value.message
    assert caught.value.retry_after_s is not None


async def test_ready_after_loading(runtime_dir: Path) -> None:
    """A request that waits is served as soon as the engine has loaded, and knows the model's facts."""
    async with following(runtime_dir) as client:
        engine = FakeEngine(settings(runtime_dir, load_s=600)).start()
        await until(lambda: client.state.phase == "loading", "loading is seen")
        engine.phase = "ready"
        ready = await client.wait_ready(PATIENCE_S)
        expected: ModelFacts = engine.facts()
        assert ready.facts == expected
        engine.stop()


async def test_rows_stream_to_their_end(runtime_dir: Path) -> None:
    """A Submit's tokens and its finish reach its own mailbox."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        bell = asyncio.Event()
        one = RowMailbox(make_submit(engine, "one", "!count", max_tokens=7), bell)
        two = RowMailbox(make_submit(engine, "two", "!echo abc"), asyncio.Event())
        ready.session.submit(one)
        ready.session.submit(two)
        ids, end = await end_of(one)
        assert (len(ids), isinstance(end, Finish) and end.reason) == (7, "length")
        ids, end = await end_of(two)
        assert engine.tokenizer.decode(ids) == "abc"
        assert isinstance(end, Finish)
        assert end.reason == "stop"
        assert client.row_count == 0
    engine.stop()


async def test_new_epoch_ends_rows_and_connects_afresh(runtime_dir: Path) -> None:
    """When the engine is another one, the old rows fail as retryable, and nothing of theirs reaches the new engine."""
    old = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        mailbox = RowMailbox(make_submit(old, "one", "!silent"), asyncio.Event())
        ready.session.submit(mailbox)
        await until(lambda: len(old.submits()) == 1, "the Submit arrives")
        old.stop(crash=True)
        new = FakeEngine(settings(runtime_dir)).start()
        _, end = await end_of(mailbox)
        assert isinstance(end, RowFailure)
        assert end.code == ErrorCode.NOT_READY
        await until(lambda: client.ready is not None, "the new engine is connected")
        fresh = await client.wait_ready(PATIENCE_S)
        assert fresh.session.epoch == new.epoch
        # What the dead session would have sent is not sent at all.
        ready.session.cancel(mailbox.submit.id, "gone")
        ready.session.ping(None)
        second = RowMailbox(make_submit(new, "two", "!echo x"), asyncio.Event())
        fresh.session.submit(second)
        await end_of(second)
        assert [type(message) for message in new.heard if not isinstance(message, Ping)] == [Hello, Submit]
        assert new.rows.tally.stale_messages == 0
        new.stop()


async def test_the_engine_hears_how_replies_are_read(runtime_dir: Path) -> None:
    """As soon as the model's template is known, and with every ping."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        await client.wait_ready(5)

        def told() -> list[ParserNames | None]:
            return [message.parsers for message in list(engine.heard) if isinstance(message, Ping)]

        await until(lambda: len(told()) > 1, "two pings arrive")
        assert set(told()) == {ParserNames(tools="hermes")}
    engine.stop()


async def test_tokenizer_fetched_once_per_hash(runtime_dir: Path) -> None:
    """A second client takes the copy in the runtime folder and fetches nothing."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        await client.wait_ready(PATIENCE_S)
    fetched = sum(isinstance(message, FetchTokenizer) for message in engine.heard)
    assert fetched > 2
    async with following(runtime_dir) as client:
        await client.wait_ready(PATIENCE_S)
    assert sum(isinstance(message, FetchTokenizer) for message in engine.heard) == fetched
    engine.stop()


async def test_corrupt_tokenizer_copy_is_replaced(runtime_dir: Path) -> None:
    """A copy whose bytes are not the hash's is thrown away and fetched again."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        await client.wait_ready(PATIENCE_S)
    [copy] = (runtime_dir / "tokenizers").iterdir()
    good = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(good[:-10] + b"corrupted!")
    async with following(runtime_dir) as client:
        await client.wait_ready(PATIENCE_S)
    assert (copy / "tokenizer.json").read_bytes() == good
    assert [path.name for path in (runtime_dir / "tokenizers").iterdir()] == [copy.name]
    engine.stop()


async def test_silent_engine_is_not_ready(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose heartbeats stop gets no new work, although its socket still answers, and gets it again later."""
    monkeypatch.setattr("frontend.engine_client.SILENT_S", 0.2)
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        await client.wait_ready(PATIENCE_S)
        engine.is_silent = True
        await until(lambda: client.state.phase == "silent", "the silence is noticed")
        with pytest.raises(RequestError):
            await client.wait_ready(0.05)
        engine.is_silent = False
        await client.wait_ready(PATIENCE_S)
    engine.stop()


async def test_rows_of_a_silent_engine_are_given_up(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row does not wait for ever for an engine that nothing is heard of."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        mailbox = RowMailbox(make_submit(engine, "one", "!silent"), asyncio.Event())
        ready.session.submit(mailbox)
        engine.is_silent = True
        monkeypatch.setattr("frontend.engine_client.SILENT_S", 0.2)
        monkeypatch.setattr("frontend.engine_client.LOST_S", 0.4)
        _, end = await end_of(mailbox)
        assert isinstance(end, RowFailure)
        assert "silent" in end.message
    engine.stop()


async def test_who_stops_says_so(runtime_dir: Path) -> None:
    """The engine ends its rows at once, and no lease runs out."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(5)
        ready.session.submit(RowMailbox(make_submit(engine, "one", "!silent"), asyncio.Event()))
        await until(lambda: len(engine.submits()) == 1, "the Submit arrives")
    await until(lambda: isinstance(engine.heard[-1], Leave), "the client says that it leaves")
    await until(lambda: not engine.clients and not engine.rows.live(), "its rows end")
    engine.stop()


async def test_an_engine_that_is_not_understood_is_left(runtime_dir: Path) -> None:
    """Its rows need not run on for nobody; the client comes back with a fresh session."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(5)
        ready.session._hear(b"\xc1")
        assert ready.session.is_lost
        await until(lambda: any(isinstance(message, Leave) for message in engine.heard), "the client leaves")
        again = await client.wait_ready(5)
        assert again.session is not ready.session
    engine.stop()


async def test_other_protocol_version_is_said(runtime_dir: Path) -> None:
    """An engine of another protocol version is never greeted, and the state names both versions."""
    engine = FakeEngine(settings(runtime_dir), protocol_version=99).start()
    async with following(runtime_dir) as client:
        await until(lambda: client.state.phase == "incompatible", "the version is compared")
        assert f"protocol 99, this frontend {PROTOCOL_VERSION}" in client.state.detail
        assert engine.heard == []
    engine.stop()


async def test_lost_lease_is_taken_anew(runtime_dir: Path) -> None:
    """After lease_lost the rows end with that code, and a fresh session is opened in the same epoch."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        mailbox = RowMailbox(make_submit(engine, "one", "!silent"), asyncio.Event())
        ready.session.submit(mailbox)
        await until(lambda: len(engine.submits()) == 1, "the Submit arrives")
        engine.lose_leases = True
        _, end = await end_of(mailbox)
        assert isinstance(end, RowFailure)
        assert end.code == ErrorCode.LEASE_LOST
        again = await client.wait_ready(PATIENCE_S)
        assert again.session is not ready.session
        assert again.session.epoch == ready.session.epoch
    engine.stop()


async def test_one_cancel_per_row(runtime_dir: Path) -> None:
    """Cancelling twice sends once; cancelling what has ended sends nothing."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        running = RowMailbox(make_submit(engine, "one", "!silent"), asyncio.Event())
        ended = RowMailbox(make_submit(engine, "two", "!echo x"), asyncio.Event())
        ready.session.submit(running)
        ready.session.submit(ended)
        await end_of(ended)
        for mailbox in (running, ended, running):
            ready.session.cancel(mailbox.submit.id, "gone")
        await until(lambda: engine.rows.counts().decoding == 0, "the row is gone")
        assert [(cancel.id, cancel.reason) for cancel in engine.cancels()] == [("one/0", "gone")]
        assert client.cancels_sent() == {"gone": 1}
    engine.stop()


async def test_consumer_that_stops_taking_is_cancelled(runtime_dir: Path) -> None:
    """A mailbox that nobody empties is bounded: its row is cancelled, its neighbour goes on."""
    engine = FakeEngine(settings(runtime_dir, context_length=1_000_000, step_ms=1)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        slow = RowMailbox(make_submit(engine, "slow", "!flood 200"), asyncio.Event())
        other = RowMailbox(make_submit(engine, "other", "!count", max_tokens=50), asyncio.Event())
        ready.session.submit(slow)
        ready.session.submit(other)
        await until(lambda: slow.has_ended, "the slow row ends")
        ids, end = await end_of(slow)
        assert isinstance(end, RowFailure)
        assert 4_096 < len(ids) <= 4_096 + 200
        await until(lambda: len(engine.cancels()) == 1, "the Cancel arrives")
        _, end = await end_of(other)
        assert isinstance(end, Finish)
        assert end.reason == "length"
    engine.stop()


async def test_message_that_is_not_understood_ends_the_session(runtime_dir: Path) -> None:
    """It may have held a row's end: the rows fail, and a fresh session is opened."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        ready = await client.wait_ready(PATIENCE_S)
        mailbox = RowMailbox(make_submit(engine, "one", "!silent"), asyncio.Event())
        ready.session.submit(mailbox)
        ready.session._hear(b"\xc1 no message")
        _, end = await end_of(mailbox)
        assert isinstance(end, RowFailure)
        assert end.code == ErrorCode.INTERNAL
        assert (await client.wait_ready(PATIENCE_S)).session is not ready.session
    engine.stop()


async def test_facts_outlive_the_engine(runtime_dir: Path) -> None:
    """The model's facts stay known while no engine is there, for /v1/models."""
    engine = FakeEngine(settings(runtime_dir)).start()
    async with following(runtime_dir) as client:
        assert client.facts is None
        await client.wait_ready(PATIENCE_S)
        engine.stop()
        await until(lambda: client.ready is None, "the engine is gone")
        assert client.facts == engine.facts()
