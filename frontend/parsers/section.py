"""Drives a format's reader over one stretch of calls: pieces of text in, events out, or the text as it was written.

Owns what holds for every format: an unknown tool or a call that never was one gives its text back, a call that breaks
after it was told says so, with its text.
"""

from dataclasses import dataclass, field
from typing import Final

from frontend.parsers.base import ArgumentsText, CallBegun, CallBroken, CallEnded, CallEvent, ToolFormat, Tools
from frontend.parsers.source import MalformedError, Source

# What lists, objects and code blocks end with, and begin with.
_BRACKETS: Final = " \t\r\n{}[]()`,;"


@dataclass(slots=True)
class SectionNews:
    """What one feed brought. rest: once the section is over, the text that is read on outside of it, else None.

    is_written: rest begins with what was read and is no call. It stands as it was written, its opener included.
    """

    events: list[CallEvent | CallBroken] = field(default_factory=list[CallEvent | CallBroken])
    rest: str | None = None
    is_written: bool = False


class CallSection:
    """One section, from behind its opener to its end; not used any more once rest was told."""

    def __init__(self, call_format: ToolFormat, opener: str, tools: Tools) -> None:
        self._source = Source(opener)
        self._tools = tools
        # Of the call that is read, or of what may be one; a start opener is read by the format.
        self._written = [] if opener in call_format.start_openers else [opener]
        self._marks = (*call_format.marks, *call_format.openers)
        self._reading = call_format.read(self._source, tools)
        self._is_in_call = False
        self._has_told = False
        self._is_cut = False

    def feed(self, text: str) -> SectionNews:
        """More text."""
        self._source.put(text)
        return self._read()

    def finish(self, *, is_cut: bool) -> SectionNews:
        """No text follows. is_cut: the model would have written more, and a call that is not whole is not broken."""
        self._is_cut = is_cut
        self._source.is_ended = True
        news = self._read()
        assert news.rest is not None, "a reader waits for more than the text's end"
        if self._has_told and not self._is_in_call and self._is_cut_end(news.rest):
            return SectionNews(news.events, rest="")
        return news

    def _is_cut_end(self, text: str) -> bool:
        """Whether it is what stands behind a whole call, cut by the end of the text: nothing that anybody reads."""
        mark = text.lstrip(_BRACKETS)
        return any(known.startswith(mark) and known != mark for known in self._marks)

    def _read(self) -> SectionNews:
        news = SectionNews()
        try:
            for event in self._reading:
                if event is None:
                    return news
                self._take(event, news)
        except MalformedError:
            self._give_up(news)
            return news
        news.rest = self._source.unread
        return news

    def _take(self, event: CallEvent, news: SectionNews) -> None:
        if isinstance(event, CallBegun) and event.name not in self._tools:
            raise MalformedError
        self._written.append(self._source.written)
        self._source.mark()
        match event:
            case CallBegun():
                self._is_in_call = True
            case ArgumentsText():
                pass
            case CallEnded():
                self._is_in_call = False
                self._has_told = True
                self._written = []
        if event != ArgumentsText(""):
            news.events.append(event)

    def _give_up(self, news: SectionNews) -> None:
        source = self._source
        unsettled = source.written + source.unread
        if not self._is_in_call:
            news.rest = "".join(self._written) + unsettled
            news.is_written = bool(news.rest)
        elif self._is_cut:
            news.rest = ""
        else:
            # What broke the call is text; the call ends before it, because something else of the choice follows.
            is_end = source.is_ended
            news.events.append(CallBroken("".join(self._written) + (unsettled if is_end else "")))
            news.rest = "" if is_end else unsettled
