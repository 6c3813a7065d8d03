"""The stream of one response, from its first event to its last; a whole reply is what the same events end with.

Owns the order of the events and of the output items.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceReasoning,
    ChoiceStarted,
    ChoiceText,
    Generation,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    TokenEntry,
    ToolCallArguments,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)
from frontend.dialects.dialect import SseEvent, named
from frontend.dialects.openai_logprobs import ChatEntry, chat_logprobs
from frontend.dialects.openai_responses_events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseErrorEvent,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
)
from frontend.dialects.openai_responses_objects import (
    FailureBody,
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    ResponseBody,
    response_usage,
)
from frontend.dialects.openai_responses_output import (
    AS_SUMMARY,
    AS_TEXT,
    OpenCustomCall,
    OpenFunctionCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
    Place,
)
from frontend.dialects.openai_responses_tools import ToolOrigin
from frontend.errors import HTTP_MEANINGS, RequestError
from protocol.messages import Usage


class AskedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a response repeats of its request, and what is stored with it.

    blank: the response before it has begun. origins: tools by the name that the model uses. items: its own input.
    """

    blank: ResponseBody
    origins: Mapping[str, ToolOrigin] = {}
    items: tuple[dict[str, Any], ...] = ()
    is_sealed: bool = False


class ResponseFramer:
    """Remembers the items so far and the number of the next event."""

    def __init__(self, facts: ReplyFacts, asked: AskedResponse) -> None:
        self._facts = facts
        self._asked = asked
        self.response = msgspec.structs.replace(asked.blank, id=facts.id, created_at=facts.created, model=facts.model)
        self._numbers = itertools.count()
        self._output: list[OutputItem] = []
        self._open: OpenItem | None = None
        self._is_cut = False
        self._reasoning_tokens = 0

    def frames(self, event: ReplyEvent) -> list[SseEvent]:
        """Named events."""
        return [named(sent) for sent in self._events(event)]

    def keepalive(self) -> None:
        """A comment will do."""

    def failed(self, error: RequestError) -> list[SseEvent]:
        """`error` for those who look for it, and the response as far as it came.

        An open item is in it, and no event tells its end: clients act on items that are done.
        """
        meaning = HTTP_MEANINGS[error.code]
        failure = FailureBody(code=failure_code(meaning.type, error), message=error.message)
        unfinished = () if self._open is None else (self._open.item("incomplete"),)
        self.response = msgspec.structs.replace(
            self.response, status="failed", error=failure, output=(*self._output, *unfinished)
        )
        told = ResponseErrorEvent(
            sequence_number=self._number(), code=error.code.value, message=error.message, param=error.param
        )
        return [named(told), named(ResponseFailed(sequence_number=self._number(), response=self.response))]

    def _events(self, event: ReplyEvent) -> list[ResponseEvent]:
        sent: list[ResponseEvent] = []
        match event:
            case ChoiceStarted():
                sent.append(ResponseCreated(sequence_number=self._number(), response=self.response))
                sent.append(ResponseInProgress(sequence_number=self._number(), response=self.response))
            case ChoiceText(text=text, entries=entries):
                sent = self._message(text, self._logprobs(entries))
            case ChoiceReasoning(text=text):
                sent = self._reasoning(text) if text else []
            case ToolCallStarted():
                sent = [*self._close("completed"), *self._begin(self._call(event))]
            case ToolCallArguments(text=text):
                assert isinstance(self._open, OpenFunctionCall | OpenCustomCall), "arguments belong to a call"
                sent = self._open.add(text)
            case ToolCallFinished():
                sent = self._close("completed")
            case ToolCallBroken():
                sent = self._close("incomplete")
            case ChoiceFinished(reason=reason, reasoning_tokens=reasoning_tokens):
                self._reasoning_tokens = reasoning_tokens
                sent = self._finished(is_cut=reason == "length")
            case ReplyFinished(usage=usage):
                sent.append(self._end(usage))
            case _ as never:
                assert_never(never)
        return sent

    def _finished(self, *, is_cut: bool) -> list[ResponseEvent]:
        self._is_cut = is_cut
        # An answer of no token at all is an empty message, for that is where clients look.
        empty = [] if self._open or self._output else self._begin(OpenMessage(self._place("msg")))
        return [*empty, *self._close("incomplete" if is_cut else "completed")]

    def _message(self, text: str, entries: Sequence[ChatEntry]) -> list[ResponseEvent]:
        if isinstance(self._open, OpenMessage):
            return self._open.add(text, entries)
        if not text:
            # A token that left no text behind a call, with its log-probability: no message begins with it.
            return []
        closed = self._close("completed")
        opened = OpenMessage(self._place("msg"))
        return [*closed, *self._begin(opened), *opened.add(text, entries)]

    def _reasoning(self, text: str) -> list[ResponseEvent]:
        if isinstance(self._open, OpenReasoning):
            return self._open.add(text)
        closed = self._close("completed")
        kind = AS_TEXT if self._asked.blank.reasoning.summary is None else AS_SUMMARY
        opened = OpenReasoning(self._place("rs"), kind, self._asked.is_sealed)
        return [*closed, *self._begin(opened), *opened.add(text)]

    def _call(self, event: ToolCallStarted) -> OpenFunctionCall | OpenCustomCall:
        # A name that no tool has is the client's to judge.
        origin = self._asked.origins.get(event.name, ToolOrigin(name=event.name))
        if origin.kind == "custom":
            return OpenCustomCall(self._place("ctc"), event.id, origin)
        return OpenFunctionCall(self._place("fc"), event.id, origin)

    def _begin(self, opened: OpenItem) -> list[ResponseEvent]:
        self._open = opened
        return opened.begin()

    def _close(self, status: ItemStatus) -> list[ResponseEvent]:
        if self._open is None:
            return []
        events, item = self._open.end(status)
        self._output.append(item)
        self._open = None
        return events

    def _place(self, prefix: str) -> Place:
        """The next item's; its id is made of the response's, so that no two responses share one."""
        index = len(self._output)
        return Place(f"{prefix}_{self._facts.id.partition('_')[2]}_{index}", index, self._number)

    def _end(self, usage: Usage) -> ResponseEvent:
        self.response = msgspec.structs.replace(
            self.response,
            status="incomplete" if self._is_cut else "completed",
            incomplete_details=IncompleteDetails() if self._is_cut else None,
            output=tuple(self._output),
            usage=response_usage(usage, self._reasoning_tokens),
        )
        kind = ResponseIncomplete if self._is_cut else ResponseCompleted
        return kind(sequence_number=self._number(), response=self.response)

    def _logprobs(self, entries: Sequence[TokenEntry]) -> tuple[ChatEntry, ...]:
        return () if self._facts.logprobs is None else chat_logprobs(entries, self._facts.logprobs).content

    def _number(self) -> int:
        return next(self._numbers)


def failure_code(kind: str, error: RequestError) -> str:
    """OpenAI's words for what it knows; clients decide by them whether to try again."""
    return {"server_error": "server_error", "rate_limit_error": "rate_limit_exceeded"}.get(kind, error.code.value)


def asked_of(generation: Generation) -> AskedResponse:
    """What this dialect's parse keeps of a request."""
    asked = generation.kept
    assert isinstance(asked, AskedResponse), "another dialect's request"
    return asked


def framer(facts: ReplyFacts, generation: Generation) -> ResponseFramer:
    """Of a request that this dialect has parsed."""
    return ResponseFramer(facts, asked_of(generation))


def whole_response(facts: ReplyFacts, generation: Generation, choices: list[WholeChoice], usage: Usage) -> ResponseBody:
    """What the stream would have ended with."""
    made = framer(facts, generation)
    for event in choices[0].events:
        made.frames(event)
    made.frames(ReplyFinished(usage))
    return made.response
