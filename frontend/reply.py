"""One request while it runs: its rows' tokens in, the dialect-free events of its choices out.

Owns the rows between Submit and their last event, and the one Cancel of each that is left early.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceStarted,
    ChoiceText,
    FinishWord,
    Generation,
    ReplyEvent,
    ReplyFinished,
)
from frontend.engine_client import ReadyEngine
from frontend.errors import RequestError
from frontend.stream import RowFailure, RowMailbox, RowNews
from frontend.text.events import TextOutput
from frontend.text.pipeline import TextPipeline
from protocol.errors import ErrorCode
from protocol.messages import Finish, Submit, Usage

log = logging.getLogger(__name__)

TOKEN_BYTES = 4


class LiveReply:
    """Submits every choice, merges their news, and is closed in any case."""

    def __init__(self, engine: ReadyEngine, submits: Sequence[Submit], generation: Generation) -> None:
        self._session = engine.session
        self._bell = asyncio.Event()
        self._rows = [_Row(submit, self._bell, _pipeline(engine, generation)) for submit in submits]
        for row, before in zip(self._rows[1:], submits, strict=False):
            row.is_first_of_group = row.mailbox.submit.group != before.group
        self._failure: RequestError | None = None
        self._late_failure: RequestError | None = None
        self._is_stream = generation.is_stream
        self._is_told = False
        self._is_nudged = False

    @property
    def usage(self) -> Usage:
        """Token counts so far: each prompt once, however many choices it has, and all that was generated."""
        prompts = [row.usage for row in self._rows if row.is_first_of_group]
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
            completion_tokens=sum(row.usage.completion_tokens for row in self._rows),
            cached_tokens=sum(usage.cached_tokens for usage in prompts),
        )

    @property
    def is_finished(self) -> bool:
        """Whether the last event was told."""
        return self._is_told

    def start(self) -> None:
        """Sends the Submits."""
        for row in self._rows:
            self._session.submit(row.mailbox)

    async def next_events(self) -> list[ReplyEvent]:
        """What has come since the last call; waits for it. Empty after a nudge() alone.

        No timeout: every row ends by a Finish, a Rejected or the end of the session. Raises RequestError:
        a request that was refused, or an engine that is lost, fails as a whole and at once. A choice that
        fails by itself in a stream leaves the others their ends, and its error comes last.
        """
        while True:
            events = self._drain()
            if events or self._is_nudged:
                self._is_nudged = False
                return events
            if self._failure is not None:
                raise self._failure
            self._bell.clear()
            await self._bell.wait()

    def nudge(self) -> None:
        """Lets next_events return although nothing has come."""
        self._is_nudged = True
        self._bell.set()

    def close(self) -> None:
        """Cancels every row that has not ended; after a normal end there is none."""
        for row in self._rows:
            self._session.cancel(row.mailbox.submit.id, "gone")

    def _drain(self) -> list[ReplyEvent]:
        events: list[ReplyEvent] = []
        for row in self._rows:
            news = row.mailbox.take()
            if news is None or row.is_finished:
                continue
            events += row.hear(news)
            if row.has_stopped_early:
                self._session.cancel(row.mailbox.submit.id, "stop")
            if row.failure is not None:
                self._note_failure(row.failure, is_alone=isinstance(news.end, Finish))
        if self._failure is None and not self._is_told and all(row.is_over for row in self._rows):
            if self._late_failure is None:
                self._is_told = True
                events.append(ReplyFinished(usage=self.usage))
            self._failure = self._late_failure
        return events

    def _note_failure(self, failure: RequestError, *, is_alone: bool) -> None:
        if is_alone and self._is_stream:
            self._late_failure = self._late_failure or failure
        else:
            self._failure = self._failure or failure


class _Row:
    """One choice: its mailbox, its text machine, and how it ended."""

    def __init__(self, submit: Submit, bell: asyncio.Event, pipeline: TextPipeline) -> None:
        self.mailbox = RowMailbox(submit, bell)
        self.usage = Usage(prompt_tokens=len(submit.prompt.ids) // TOKEN_BYTES, completion_tokens=0)
        self.failure: RequestError | None = None
        self.is_finished = False
        self.is_first_of_group = True
        self._choice = submit.choice
        self._pipeline = pipeline
        self._is_started = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come: it was told to its end, or has failed."""
        return self.is_finished or self.failure is not None

    @property
    def has_stopped_early(self) -> bool:
        """Whether a stop string ended the choice while its row still runs."""
        return self.is_finished and not self.mailbox.has_ended

    def hear(self, news: RowNews) -> list[ReplyEvent]:
        """The events of one take; a failure that brings no token is none, so that it can still be an HTTP status."""
        self.failure = None if news.end is None else _failure_of(news.end)
        if self.failure is not None and not news.ids:
            return []
        events: list[ReplyEvent] = []
        if not self._is_started:
            self._is_started = True
            events.append(ChoiceStarted(self._choice))
        # For the log line of a reply that is cancelled or fails; a normal end brings its own usage.
        told_tokens = self.usage.completion_tokens + len(news.ids)
        self.usage = msgspec.structs.replace(self.usage, completion_tokens=told_tokens)
        events += self._told(self._pipeline.feed(news.ids))
        if isinstance(news.end, Finish):
            events += self._ended(news.end)
        if self.is_finished:
            self.failure = None
        return events

    def _told(self, output: TextOutput) -> list[ReplyEvent]:
        events: list[ReplyEvent] = [ChoiceText(self._choice, output.text)] if output.text else []
        if output.is_stopped:
            self.usage = Usage(prompt_tokens=self.usage.prompt_tokens, completion_tokens=output.consumed_tokens)
            events.append(self._finished("stop"))
        return events

    def _ended(self, end: Finish) -> list[ReplyEvent]:
        if self.is_finished:
            # A stop string in the row's last tokens: the engine's count goes further than the text.
            self.usage = msgspec.structs.replace(self.usage, cached_tokens=end.usage.cached_tokens)
            return []
        self.usage = end.usage
        if end.reason not in ("stop", "length"):
            return []
        events = self._told(self._pipeline.finish())
        return events if self.is_finished else [*events, self._finished(end.reason)]

    def _finished(self, reason: FinishWord) -> ChoiceFinished:
        self.is_finished = True
        return ChoiceFinished(self._choice, reason)


def _failure_of(end: Finish | RowFailure) -> RequestError | None:
    """The error that an end means; None for a normal one."""
    if isinstance(end, RowFailure):
        return RequestError(end.code, end.message, end.param, end.retry_after_s)
    match end.reason:
        case "stop" | "length":
            return None
        case "deadline":
            return RequestError(ErrorCode.DEADLINE_EXCEEDED, "the request's timeout has passed", "timeout")
        case "lease_lost":
            return RequestError(ErrorCode.LEASE_LOST, "the engine ended this frontend's rows; try again")
        case "cancelled":
            return RequestError(ErrorCode.INTERNAL, "the engine cancelled the request")
        case "error":
            return RequestError(end.code or ErrorCode.INTERNAL, end.message or "the engine failed")


def _pipeline(engine: ReadyEngine, generation: Generation) -> TextPipeline:
    return TextPipeline(
        engine.text.tokenizer,
        stops=generation.stops,
        include_stop=generation.include_stop,
        skip_special_tokens=generation.skip_special_tokens,
    )
