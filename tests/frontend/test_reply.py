"""A live reply: tokens in any cut, the same events out, and the Cancels that go with them."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from frontend.dialects.base import ChoiceFinished, ChoiceStarted, ChoiceText, Generation, ReplyEvent, ReplyFinished
from frontend.engine_client import ReadyEngine
from frontend.errors import RequestError
from frontend.model_text import ModelText, load_model_text
from frontend.reply import LiveReply
from frontend.stream import RowFailure, RowMailbox
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import (
    BosRule,
    CancelReason,
    Finish,
    FinishReason,
    RowDelta,
    Submit,
    SubmitId,
    TokenPrompt,
    Usage,
)
from tests.fakes.deadline import until
from tests.fakes.tokenizer_folder import build_tokenizer_folder

TEXT = "the 🦊 jumps over the lazy dog"


class RecordingSession:
    """Takes the place of an EngineSession: keeps what was sent."""

    def __init__(self) -> None:
        self.mailboxes: list[RowMailbox] = []
        self.cancels: list[tuple[str, CancelReason]] = []
        self.kept_tokens: list[int] = []

    def submit(self, mailbox: RowMailbox) -> None:
        self.mailboxes.append(mailbox)

    def cancel(self, submit_id: SubmitId, reason: CancelReason, keep_tokens: int = 0) -> None:
        """As the real one: a row that has ended or was cancelled needs none."""
        [mailbox] = [each for each in self.mailboxes if each.submit.id == submit_id]
        if not mailbox.has_ended and submit_id not in [id_ for id_, _ in self.cancels]:
            self.cancels.append((submit_id, reason))
            self.kept_tokens.append(keep_tokens)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return load_model_text(build_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")), BosRule())


def make_reply(text: ModelText, choices: int = 1, stops: tuple[str, ...] = ()) -> tuple[LiveReply, RecordingSession]:
    session = RecordingSession()
    submits = [
        Submit(
            epoch="e",
            id=SubmitId(f"r/{choice}"),
            group=f"r/{choice}",
            choice=choice,
            model="m",
            prompt=TokenPrompt(ids=pack_ids([1, 2, 3])),
        )
        for choice in range(choices)
    ]
    engine = ReadyEngine(session, None, text)  # type: ignore[arg-type]  # a stand-in, and facts that are not read
    reply = LiveReply(engine, submits, Generation(model=None, prompts=(), stops=stops))
    reply.start()
    return reply, session


def put(mailbox: RowMailbox, ids: list[int], reason: FinishReason | None = None, tokens: int = 0) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=tokens, cached_tokens=2)
    finish = None if reason is None else Finish(reason=reason, usage=usage)
    mailbox.put_delta(RowDelta(id=mailbox.submit.id, tokens=pack_ids(ids), finish=finish))
    mailbox.ring()


async def all_events(reply: LiveReply, deltas: Iterator[None]) -> list[ReplyEvent]:
    """Every event of a reply whose deltas are put one by one, the next when the last was taken."""

    async def consume() -> list[ReplyEvent]:
        events: list[ReplyEvent] = []
        while not reply.is_finished:
            events += await reply.next_events()
        return events

    consuming = asyncio.ensure_future(consume())
    for _ in deltas:
        await until(lambda: consuming.done() or not reply._bell.is_set(), "the delta is taken")
        if consuming.done():
            break
    async with asyncio.timeout(5):
        return await consuming


def joined(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ChoiceText))


async def test_same_events_at_every_cut(text: ModelText) -> None:
    """Two deltas, cut anywhere: the text, the ending and the usage are the same."""
    ids = text.tokenizer.encode_rendered(TEXT)
    for cut in range(1, len(ids)):
        reply, session = make_reply(text)

        def deltas(cut: int = cut, session: RecordingSession = session) -> Iterator[None]:
            put(session.mailboxes[0], ids[:cut])
            yield
            put(session.mailboxes[0], ids[cut:], "length", len(ids))
            yield

        events = await all_events(reply, deltas())
        assert joined(events) == TEXT
        assert events[0] == ChoiceStarted(0)
        usage = Usage(prompt_tokens=3, completion_tokens=len(ids), cached_tokens=2)
        assert events[-2:] == [ChoiceFinished(0, "length"), ReplyFinished(usage)]
        assert session.cancels == []


async def test_stop_at_every_cut(text: ModelText) -> None:
    """A stop string is found however its tokens arrive; one Cancel while the row runs, none when it had ended."""
    ids = text.tokenizer.encode_rendered(TEXT)
    for start, cut in pairwise(range(len(ids))):
        reply, session = make_reply(text, stops=("over t",))

        def deltas(start: int = start, cut: int = cut, session: RecordingSession = session) -> Iterator[None]:
            for piece in (ids[:start], ids[start:cut], ids[cut:]):
                if piece:
                    put(session.mailboxes[0], piece)
                    yield

        events = await all_events(reply, deltas())
        assert joined(events) == "the 🦊 jumps "
        assert [event.reason for event in events if isinstance(event, ChoiceFinished)] == ["stop"]
        assert session.cancels == [("r/0", "stop")]
        consumed = reply.usage.completion_tokens
        assert session.kept_tokens == [reply.usage.prompt_tokens + consumed]
        assert "over t" in text.tokenizer.decode(ids[:consumed], False)
        assert "over t" not in text.tokenizer.decode(ids[: consumed - 1], False)
        reply.close()
        assert len(session.cancels) == 1


async def test_stop_in_the_last_delta(text: ModelText) -> None:
    """When the row ended in the same delta there is nothing to cancel, and the engine's cached count is kept."""
    reply, session = make_reply(text, stops=("lazy",))
    ids = text.tokenizer.encode_rendered(TEXT)
    put(session.mailboxes[0], ids, "length", len(ids))
    events = await reply.next_events()
    assert joined(events) == "the 🦊 jumps over the "
    assert session.cancels == []
    assert reply.usage.cached_tokens == 2
    assert reply.usage.completion_tokens < len(ids)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("deadline", ErrorCode.DEADLINE_EXCEEDED),
        ("lease_lost", ErrorCode.LEASE_LOST),
        ("cancelled", ErrorCode.INTERNAL),
        ("error", ErrorCode.INTERNAL),
    ],
)
async def test_failed_finish_is_an_error(text: ModelText, reason: FinishReason, code: ErrorCode) -> None:
    """Alone it comes before any event; behind tokens, after theirs; never with a finish reason."""
    reply, session = make_reply(text)
    put(session.mailboxes[0], [], reason)
    with pytest.raises(RequestError) as caught:
        await reply.next_events()
    assert caught.value.code == code
    reply, session = make_reply(text)
    put(session.mailboxes[0], text.tokenizer.encode_rendered("fox"), reason)
    events = await reply.next_events()
    assert joined(events) == "fox"
    assert not any(isinstance(event, ChoiceFinished) for event in events)
    with pytest.raises(RequestError):
        await reply.next_events()


async def test_close_cancels_what_runs(text: ModelText) -> None:
    """Of three choices, the ended and the failed need no Cancel."""
    reply, session = make_reply(text, choices=3)
    put(session.mailboxes[0], [5], "stop", 2)
    session.mailboxes[1].put_failure(RowFailure(code=ErrorCode.QUEUE_FULL, message="full"))
    await reply.next_events()
    with pytest.raises(RequestError):
        await reply.next_events()
    reply.close()
    assert session.cancels == [("r/2", "gone")]


@pytest.mark.parametrize("reason", [None, "error"])
async def test_unfinished_reply_counts_what_came(text: ModelText, reason: FinishReason | None) -> None:
    """A client that leaves and an engine that fails, both after tokens: the log line has their number."""
    reply, session = make_reply(text)
    ids = text.tokenizer.encode_rendered("fox fox")
    for token in ids:
        put(session.mailboxes[0], [token])
        await reply.next_events()
    if reason is not None:
        put(session.mailboxes[0], [], reason, tokens=len(ids))
        with pytest.raises(RequestError):
            await reply.next_events()
    reply.close()
    assert reply.usage.completion_tokens == len(ids)


async def test_nudge_returns_with_nothing(text: ModelText) -> None:
    """A nudge ends one wait without events, and the next news is told as ever."""
    reply, session = make_reply(text)
    waiting = asyncio.ensure_future(reply.next_events())
    await asyncio.sleep(0)
    reply.nudge()
    assert await waiting == []
    put(session.mailboxes[0], text.tokenizer.encode_rendered("fox"))
    assert joined(await reply.next_events()) == "fox"


async def test_what_a_silent_reply_waits_for(text: ModelText) -> None:
    """Prompt tokens over all prompts, never more than there are; a prompt that speaks is whole."""
    reply, session = make_reply(text, choices=2)
    first, second = session.mailboxes
    assert reply.waiting_for == "waiting"
    first.put_delta(RowDelta(id=first.submit.id, prefilled=1))
    assert reply.waiting_for == "prefill 1/6"
    first.put_delta(RowDelta(id=first.submit.id, prefilled=10_000))
    assert reply.waiting_for == "prefill 3/6"
    second.gained_at_s = 1.0
    assert reply.waiting_for == "waiting"
    reply.close()
