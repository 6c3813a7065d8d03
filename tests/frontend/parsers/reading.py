"""Runs a reader's step over text that comes in pieces."""

from collections.abc import Callable, Generator
from typing import Any

from frontend.parsers.base import CallEvent
from frontend.parsers.source import MalformedError, Source

Step = Callable[[Source], Generator[CallEvent | None, None, Any]]


class Read:
    """What a step has told and returned; is_malformed: it gave up. rest: what it left unread."""

    def __init__(self, step: Step, pieces: list[str]) -> None:
        source = Source()
        self.events: list[CallEvent] = []
        self.result: Any = None
        self.is_malformed = False
        self._steps = step(source)
        self._is_over = False
        for piece in pieces:
            source.put(piece)
            self._go_on()
        source.is_ended = True
        self._go_on()
        assert self._is_over, "the step waits for more than the end of the text"
        self.rest = source.unread

    def _go_on(self) -> None:
        while not self._is_over:
            try:
                event = next(self._steps)
            except StopIteration as stop:
                self.result, self._is_over = stop.value, True
            except MalformedError:
                self.is_malformed, self._is_over = True, True
            else:
                if event is None:
                    return
                self.events.append(event)
