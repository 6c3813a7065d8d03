"""A dialect as the routes see it: pure functions from a body to a Generation and from events to what is sent.

Owns no field and no frame; each dialect's own module does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import msgspec

from frontend.dialects.base import Generation, ReplyEvent, ReplyFacts, WholeChoice
from frontend.errors import RequestError
from protocol.messages import Usage


class SseEvent(NamedTuple):
    """One event of a stream. name: of the `event:` line; None for none."""

    content: msgspec.Struct
    name: str | None = None


def named(content: msgspec.Struct) -> SseEvent:
    """A tagged struct as an event whose name is its tag."""
    return SseEvent(content, cast(str, type(content).__struct_config__.tag))


class Framer(Protocol):
    """Makes one stream's frames, in order; may remember what it has sent, and does nothing else."""

    def frames(self, event: ReplyEvent) -> list[SseEvent]:
        """What is sent for an event."""
        ...

    def keepalive(self) -> SseEvent | None:
        """What is sent into a silence; None for a comment."""
        ...

    def failed(self, error: RequestError) -> list[SseEvent]:
        """What ends a stream that has begun and cannot go on; nothing for the route's envelope."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """parse: of decoded JSON; raises RequestError. whole: a reply that is not streamed.

    has_done: streams end with `[DONE]`.
    """

    id_prefix: str
    parse: Callable[[object], Generation]
    framer: Callable[[ReplyFacts, Generation], Framer]
    whole: Callable[[ReplyFacts, Generation, list[WholeChoice], Usage], msgspec.Struct]
    has_done: bool = True


PlainFrames = Callable[[ReplyFacts, ReplyEvent, bool], list[msgspec.Struct]]


@dataclass(frozen=True, slots=True)
class PlainFramer:
    """OpenAI's older dialects: each event's frames depend on that event alone."""

    plain_frames: PlainFrames
    facts: ReplyFacts
    include_usage: bool

    def frames(self, event: ReplyEvent) -> list[SseEvent]:
        """Unnamed events."""
        return [SseEvent(content) for content in self.plain_frames(self.facts, event, self.include_usage)]

    def keepalive(self) -> None:
        """A comment will do."""

    def failed(self, error: RequestError) -> list[SseEvent]:
        """The envelope will do."""
        del error
        return []
