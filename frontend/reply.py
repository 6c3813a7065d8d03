"""One request while it runs: its rows' tokens in, the dialect-free events of its choices out.

Owns the rows between Submit and their last event, and the one Cancel of each that is left early.
"""

import asyncio
from collections.abc import Sequence

from frontend.choice import TOKEN_BYTES, ChoiceTexts, LiveChoice
from frontend.dialects.base import Generation, ReplyEvent, ReplyFinished
from frontend.echo import PromptEcho
from frontend.engine_client import ReadyEngine
from frontend.errors import RequestError
from frontend.stream import RowMailbox
from frontend.text.structure import PLAIN_TEXT, ReplyForm
from protocol.messages import Finish, Submit, Usage


class LiveReply:
    """Submits every choice, merges their news, and is closed in any case."""

    def __init__(
        self,
        engine: ReadyEngine,
        submits: Sequence[Submit],
        generation: Generation,
        echoes: Sequence[PromptEcho] = (),
        form: ReplyForm = PLAIN_TEXT,
    ) -> None:
        self._session = engine.session
        self._bell = asyncio.Event()
        texts = ChoiceTexts(engine.text, generation, form)
        rows = generation.rows_per_prompt
        self._rows = [
            LiveChoice(RowMailbox(submit, self._bell), texts, echoes[index // rows] if echoes else None)
            for index, submit in enumerate(submits)
        ]
        for row, before in zip(self._rows[1:], submits, strict=False):
            row.is_first_of_group = row.mailbox.submit.group != before.group
        self._failure: RequestError | None = None
        self._late_failure: RequestError | None = None
        self._is_stream = generation.is_stream
        self._is_told = False
        self._is_nudged = False
        self._has_backlog = False

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
        if self._has_backlog:
            # Others get their turn between the pieces of a long prompt's log-probabilities.
            await asyncio.sleep(0)
        while True:
            events = self._drain()
            if events or self._is_nudged:
                self._is_nudged = False
                return events
            if self._failure is not None:
                raise self._failure
            self._bell.clear()
            await self._bell.wait()

    @property
    def waiting_for(self) -> str:
        """What is done while nothing comes: `prefill 4096/16384` over all prompts, in tokens, or `waiting`."""
        mailboxes = [row.mailbox for row in self._rows if row.is_first_of_group]
        totals = [len(mailbox.submit.prompt.ids) // TOKEN_BYTES for mailbox in mailboxes]
        done = [
            total if mailbox.gained_at_s is not None else min(mailbox.prefilled, total)
            for mailbox, total in zip(mailboxes, totals, strict=True)
        ]
        is_under_way = any(done) and done != totals
        return f"prefill {sum(done)}/{sum(totals)}" if is_under_way else "waiting"

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
        has_end = self._has_backlog = False
        for row in self._rows:
            news = row.mailbox.take()
            if news is None or row.is_finished:
                continue
            if news.prompt_logprobs:
                self._has_backlog = True
            events += row.hear(news)
            if row.has_stopped_early:
                self._session.cancel(row.mailbox.submit.id, "stop", row.keep_tokens)
            if row.failure is not None:
                self._note_failure(row.failure, is_alone=isinstance(news.end, Finish))
            has_end = has_end or row.is_over
        if has_end and self._failure is None and all(row.is_over for row in self._rows):
            if self._late_failure is None:
                self._is_told = True
                events.append(ReplyFinished(self.usage, sum(row.reasoning_tokens for row in self._rows)))
            self._failure = self._late_failure
        return events

    def _note_failure(self, failure: RequestError, *, is_alone: bool) -> None:
        if is_alone and self._is_stream:
            self._late_failure = self._late_failure or failure
        else:
            self._failure = self._failure or failure
