"""One choice of a reply while its row runs: tokens in, the dialect-free events of its text and its end out.

Owns its text machine, the echo of its prompt and its log-probabilities; the row's Submit and Cancel are reply's.
"""

import secrets
from dataclasses import dataclass

import msgspec

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    FinishWord,
    Generation,
    ReplyEvent,
    TokenEntry,
    ToolCallArguments,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
)
from frontend.echo import EchoProgress, PromptEcho
from frontend.entries import TokenEntries
from frontend.errors import RequestError
from frontend.model_text import ModelText
from frontend.parsers.base import ArgumentsText, CallBegun, CallBroken, CallEnded
from frontend.stream import RowEnd, RowFailure, RowMailbox, RowNews
from frontend.text.events import TextOutput
from frontend.text.pipeline import TextOptions, TextPipeline
from frontend.text.structure import PLAIN_TEXT, Piece, ReasoningPiece, ReplyForm, StopFound, TextPiece
from protocol.errors import ErrorCode
from protocol.messages import Finish, Usage

TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class ChoiceTexts:
    """What all choices of a request make their texts with."""

    text: ModelText
    generation: Generation
    form: ReplyForm = PLAIN_TEXT

    def pipeline(self, *, has_spans: bool) -> TextPipeline:
        """A text machine for one choice."""
        options = TextOptions(
            stops=self.generation.stops,
            include_stop=self.generation.include_stop,
            min_tokens=self.generation.min_tokens,
            skip_special_tokens=self.generation.skip_special_tokens,
            has_spans=has_spans,
        )
        return TextPipeline(self.text.tokenizer, options, self.form)


class LiveChoice:
    """One choice: its mailbox, its text machine, and how it ended."""

    def __init__(self, mailbox: RowMailbox, texts: ChoiceTexts, echo: PromptEcho | None) -> None:
        submit = mailbox.submit
        has_entries = submit.logprobs is not None
        self.mailbox = mailbox
        self.failure: RequestError | None = None
        self.is_finished = False
        self.is_first_of_group = True
        self._choice = submit.choice
        self._heard_tokens = 0
        self._told_usage: Usage | None = None
        self._pipeline = texts.pipeline(has_spans=has_entries)
        self._entries = TokenEntries(texts.text.token_bytes, len(echo.text) if echo else 0) if has_entries else None
        self._echo = EchoProgress(echo, submit.choice, texts.text.token_bytes) if echo else None
        self._is_echo_only = texts.generation.is_echo_only
        self._is_stop_included = texts.generation.include_stop
        self._calls = 0
        # Among those that were heard.
        self.reasoning_tokens = 0
        self._call_ids: set[str] = set()
        self._is_started = False

    @property
    def usage(self) -> Usage:
        """The row's own at a normal end; before that, and of a reply that is cancelled or fails, what has come."""
        if self._told_usage is not None:
            return self._told_usage
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._heard_tokens,
            cached_tokens=self.mailbox.cached_tokens,
        )

    @property
    def keep_tokens(self) -> int:
        """How much of a row that was stopped early the next turn will send again: the prompt, and what was read."""
        return self._prompt_tokens + self._heard_tokens

    @property
    def _prompt_tokens(self) -> int:
        return len(self.mailbox.submit.prompt.ids) // TOKEN_BYTES

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come: it was told to its end, or has failed."""
        return self.is_finished or self.failure is not None

    @property
    def has_stopped_early(self) -> bool:
        """Whether a stop string ended the choice while its row still runs."""
        return self.is_finished and not self.mailbox.has_ended

    def hear(self, news: RowNews) -> list[ReplyEvent]:
        """The events of one take; a failure that brings no token is none, so that it can still be an HTTP status.

        Raises RequestError when the engine told log-probabilities that do not fit the tokens.
        """
        self.failure = None if news.end is None else _failure_of(news.end)
        if self.failure is not None and not news.ids:
            return []
        events: list[ReplyEvent] = []
        if not self._is_started:
            self._is_started = True
            events.append(ChoiceStarted(self._choice, self.mailbox.cached_tokens))
        if self._echo is not None:
            events += self._echoed(self._echo, news)
        if self._is_echo_only:
            return [*events, *self._ended_echo(news.end)]
        if self._entries is not None:
            self._entries.hear(news)
        self._heard_tokens += len(news.ids)
        events += self._told(self._pipeline.feed(news.ids))
        if isinstance(news.end, Finish):
            events += self._ended(news.end)
        if self.is_finished:
            self.failure = None
        return events

    def _echoed(self, echo: EchoProgress, news: RowNews) -> list[ReplyEvent]:
        """The prompt comes in pieces while its log-probabilities do, and is whole before the choice's own text."""
        if news.prompt_logprobs:
            return [echo.told(news.prompt_logprobs)]
        self._echo = None
        rest = echo.rest()
        return [] if rest is None else [rest]

    def _ended_echo(self, end: RowEnd | None) -> list[ReplyEvent]:
        """The one token that the engine generated is not wanted."""
        if not isinstance(end, Finish) or self.failure is not None:
            return []
        self._told_usage = msgspec.structs.replace(end.usage, completion_tokens=0)
        return [self._finished("length")]

    def _told(self, output: TextOutput) -> list[ReplyEvent]:
        events: list[ReplyEvent] = []
        self.reasoning_tokens = output.reasoning_tokens
        for piece, starts in output.pieces:
            entries = () if self._entries is None else self._entries.told(starts)
            events.append(self._event(piece, entries))
        if output.is_over:
            self._heard_tokens = output.consumed_tokens
            events.append(self._finished("stop", output.stop))
        return events

    def _event(self, piece: Piece, entries: tuple[TokenEntry, ...]) -> ReplyEvent:
        match piece:
            case TextPiece(text):
                return ChoiceText(self._choice, text, entries)
            case ReasoningPiece(text):
                return ChoiceReasoning(self._choice, text, entries)
            case CallBegun(name, id_):
                self._calls += 1
                return ToolCallStarted(self._choice, self._calls - 1, self._call_id(id_), name)
            case ArgumentsText(text):
                return ToolCallArguments(self._choice, self._calls - 1, text, entries)
            case CallEnded():
                return ToolCallFinished(self._choice, self._calls - 1)
            case CallBroken(written):
                return ToolCallBroken(self._choice, self._calls - 1, written)
            case StopFound():
                raise AssertionError("a stop is told by the output, never among its pieces")

    def _call_id(self, written: str | None) -> str:
        """The model's own, which it reads again in the next turn's prompt, if it is a new one."""
        id_ = f"call_{secrets.token_hex(12)}" if written is None or written in self._call_ids else written
        self._call_ids.add(id_)
        return id_

    def _ended(self, end: Finish) -> list[ReplyEvent]:
        if self.is_finished:
            # A stop string in the row's last tokens: the engine's count goes further than the text.
            self._told_usage = msgspec.structs.replace(self.usage, cached_tokens=end.usage.cached_tokens)
            return []
        self._told_usage = end.usage
        if end.reason not in ("stop", "length"):
            return []
        last = end.stop_id if self._is_stop_included else None
        events = self._told(self._pipeline.finish(last, is_cut=end.reason == "length"))
        return events if self.is_finished else [*events, self._finished(end.reason)]

    def _finished(self, reason: FinishWord, stop: str | None = None) -> ChoiceFinished:
        """A reply that calls ends with `tool_calls`, unless it was cut: its calls may not be whole then."""
        self.is_finished = True
        word: FinishWord = "tool_calls" if reason == "stop" and self._calls else reason
        return ChoiceFinished(self._choice, word, stop, self.reasoning_tokens)


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
