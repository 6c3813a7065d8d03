"""What a reply's text is made of: reasoning, tool calls and the text between them, found while it comes.

Owns the states and which markers count in each; formats are the parsers', tokens the pipeline's. Stop strings count in
text alone: within reasoning or arguments they would cut what their client never sees as text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from frontend.dialects.base import Tool
from frontend.parsers.base import CallBroken, CallEnded, CallEvent, ReasoningFormat, ToolFormat
from frontend.parsers.section import CallSection, SectionNews
from frontend.text.backlog import Backlog
from frontend.text.held_space import HeldSpace
from frontend.text.markers import MarkerFound, MarkerScanner, first_start


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Text of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class StopFound:
    """The text ends here. unread: characters that were fed and lie behind the stop string."""

    stop: str
    unread: int


Piece = TextPiece | ReasoningPiece | CallEvent | CallBroken | StopFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyForm:
    """What a reply may hold beside text. tools: by name; empty: none can be called.

    hidden: special tokens that are markers or parts of them, and never text. is_parallel: else the reply ends with
    its first call. is_call_forced: a grammar lets nothing but calls follow what the model may think.
    """

    call_format: ToolFormat | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    reasoning: ReasoningFormat | None = None
    is_in_reasoning: bool = False
    hidden: tuple[str, ...] = ()
    is_parallel: bool = True
    is_call_forced: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        """Of call sections, anywhere in text."""
        return self.call_format.openers if self.call_format and self.tools else ()

    @property
    def start_openers(self) -> tuple[str, ...]:
        """Of call sections, where a stretch of text begins."""
        return self.call_format.start_openers if self.call_format and self.tools else ()


PLAIN_TEXT: Final = ReplyForm()
# A longer header is none: its end is forgotten, and it is text.
MAX_HEADER_CHARACTERS: Final = 400


class _State(Enum):
    START = auto()
    HEADER = auto()
    TEXT = auto()
    REASONING = auto()
    SECTION = auto()


class ReplyStructure:
    """Text in, pieces out, in order; however the text is cut, the joined pieces are the same."""

    def __init__(self, form: ReplyForm, stops: tuple[str, ...], include_stop: bool) -> None:
        reasoning = form.reasoning
        self._form = form
        self._stops = stops
        self._is_stop_included = include_stop
        self._begins: tuple[str, ...] = reasoning.begins if reasoning else ()
        self._dropped: tuple[str, ...] = reasoning.dropped if reasoning else ()
        ends: tuple[str, ...] = reasoning.ends if reasoning else ()
        ending_openers = form.openers if reasoning and reasoning.is_ended_by_calls else ()
        self._headers = reasoning.headers if reasoning else None
        header_begins = self._headers.begins if self._headers else ()
        header_starts = (*header_begins, *self._headers.start_begins) if self._headers else ()
        # Of equal strings the first counts: a stop before the opener that it is.
        self._text_scanner = MarkerScanner((*stops, *header_begins, *form.openers, *self._dropped), len(stops))
        self._reasoning_scanner = MarkerScanner((*ends, *header_begins, *ending_openers, *self._dropped))
        self._start_markers = (*header_starts, *self._begins, *form.openers, *form.start_openers, *self._dropped)
        self._ends = ends
        self._section: CallSection | None = None
        self._state = _State.REASONING if form.is_in_reasoning else _State.START
        # START: text that may still be a marker. HEADER: all of it so far. SECTION: the white space before it.
        self._held: str = ""
        # START: before what is held. REASONING: at its end.
        self._space = HeldSpace()
        self._longest_stop = max(map(len, stops), default=0)
        self._backlog = Backlog()
        self._is_space_kept = True
        self._has_calls = False
        self._is_reasoning_begun = False
        self._is_header_marked = True
        # How many characters were fed since stop strings count.
        self._counted = 0
        self.is_over = False
        self._pieces: list[Piece] = []

    @property
    def is_in_reasoning(self) -> bool | None:
        """Whether what comes next is reasoning, or its end; None where reasoning may be about to begin."""
        return None if self._state in (_State.START, _State.HEADER) else self._state is _State.REASONING

    @property
    def held_characters(self) -> int:
        """How many of the last characters may yet become text, or a marker."""
        match self._state:
            case _State.START | _State.HEADER:
                return len(self._space) + len(self._held)
            case _State.TEXT:
                return self._text_scanner.held_characters
            case _State.REASONING:
                return len(self._space) + self._reasoning_scanner.held_characters
            case _State.SECTION:
                return 0

    def feed(self, text: str, *, has_stops: bool = True) -> list[Piece]:
        """What the text made certain. Nothing more once is_over. has_stops: whether a stop string may end in it."""
        self._counted = self._counted + len(text) if has_stops else 0
        self._advance(text)
        return self._taken()

    def finish(self, text: str = "", *, is_cut: bool = False, has_stops: bool = True) -> list[Piece]:
        """What was held, and the last text. is_cut: the model would have written more. has_stops: as of feed."""
        pieces = self.feed(text, has_stops=has_stops)
        while self._state is _State.SECTION and not self.is_over:
            section = self._section
            assert section is not None
            self._advance(self._after_section(section.finish(is_cut=is_cut)))
        if is_cut and self._has_calls and self._state is _State.START:
            # White space, or a mark that nobody can read any more.
            self._held = ""
            self._space.take()
        if not self.is_over:
            self._release()
        pieces += self._taken()
        if is_cut and self._form.is_call_forced:
            # The beginning of a call, of which too little came to be told: it can be nothing else.
            return [piece for piece in pieces if not isinstance(piece, TextPiece)]
        return pieces

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _advance(self, text: str) -> None:
        """Each state takes what it can; the rest goes to the next one."""
        backlog = self._backlog
        piece = backlog.piece_of(text)
        while piece and not self.is_over:
            rest = self._read_on(piece)
            if rest:
                piece = backlog.piece_of(rest)
            elif backlog.characters:
                piece = backlog.next_piece()
            else:
                return

    def _read_on(self, text: str) -> str | None:
        match self._state:
            case _State.START:
                return self._at_start(text)
            case _State.HEADER:
                return self._in_header(text)
            case _State.TEXT:
                return self._in_text(text)
            case _State.REASONING:
                return self._in_reasoning(text)
            case _State.SECTION:
                return self._in_section(text)

    def _release(self) -> None:
        if self._state is _State.START:
            held, self._held = self._space.take() + self._held, ""
            if held.strip() or (self._is_space_kept and not self._has_calls):
                self._tell_text(held if self._is_space_kept else held.lstrip())
        elif self._state is _State.HEADER:
            if not self._is_header_marked:
                self._tell_text(self._held)
        elif self._state is _State.TEXT:
            self._tell_text(self._text_scanner.finish())
        elif self._state is _State.REASONING:
            self._tell_reasoning(self._reasoning_scanner.finish())

    def _at_start(self, text: str) -> str | None:
        """White space before a marker is no text, and before a marker nothing else may stand."""
        # A stop string that ends from here on begins no further back.
        space = self._space.tail(self._longest_stop)
        found = self._held + text
        if not self._held:
            found = text.lstrip()
            self._space.add(text[: len(text) - len(found)])
            space += text[: len(text) - len(found)]
        matched = min((marker for marker in self._start_markers if found.startswith(marker)), key=len, default=None)
        claimed = (space if self._is_space_kept else "") + (found if matched is None else matched)
        # What is held here ends with the last character that was read.
        passed = len(claimed) + (0 if matched is None else len(found) - len(matched)) - self._counted_here
        has_stop = any(claimed.find(stop, first_start(stop, passed)) >= 0 for stop in self._stops)
        if matched is not None and not has_stop:
            self._held = ""
            return self._past_start_marker(matched, self._taken_space(), found)
        if not has_stop and any(marker.startswith(found) for marker in self._start_markers):
            self._held = found
            return None
        self._held = ""
        self._state = _State.TEXT
        return self._taken_space() + found

    @property
    def _counted_here(self) -> int:
        """Of the text so far, in how many last characters a stop string must end."""
        return self._counted - self._backlog.characters

    def _taken_space(self) -> str:
        space = self._space.take()
        return space if self._is_space_kept else ""

    def _past_start_marker(self, marker: str, space: str, found: str) -> str:
        after = found[len(marker) :]
        if self._headers and marker in self._headers.start_begins:
            self._begin_header(is_marked=False)
            return found
        if self._headers and marker in self._headers.begins:
            self._begin_header(is_marked=True)
        elif marker in self._begins:
            self._begin_reasoning()
        elif marker in self._form.start_openers:
            self._begin_section(marker, space)
            return found
        elif marker in self._form.openers:
            self._begin_section(marker, space)
        return after

    def _in_header(self, text: str) -> str | None:
        headers = self._headers
        assert headers is not None
        text = self._held + text
        header, end, after = text.partition(headers.end)
        if len(header) > MAX_HEADER_CHARACTERS + (0 if end else len(headers.end)):
            self._held = ""
            self._state = _State.TEXT
            return text
        if not end:
            self._held = text
            return None
        self._begin_start(is_space_kept=True)
        kind = headers.kind_of(header)
        if kind == "reasoning":
            self._begin_reasoning()
        elif kind == "call" and self._form.call_format and self._form.tools:
            self._begin_section("", "")
            return text
        return after

    def _in_text(self, text: str) -> str | None:
        scan = self._text_scanner.feed(text, self._counted_here)
        if scan.found is None:
            self._tell_text(scan.before)
            return None
        marker = self._text_scanner.markers[scan.found.marker]
        if scan.found.marker < len(self._stops):
            self._tell_text(scan.before + (marker if self._is_stop_included else ""))
            self._pieces.append(StopFound(marker, len(scan.found.after) + self._backlog.characters))
            self.is_over = True
            return None
        self._tell_text(scan.before)
        return self._past_marker(marker, scan.found)

    def _in_reasoning(self, text: str) -> str | None:
        scan = self._reasoning_scanner.feed(text)
        self._tell_reasoning(scan.before)
        if scan.found is None:
            return None
        marker = self._reasoning_scanner.markers[scan.found.marker]
        if self._headers and marker in self._headers.begins:
            self._begin_header(is_marked=True)
        elif marker in self._ends:
            self._begin_start(is_space_kept=False)
        elif marker in self._form.openers:
            self._is_space_kept = False
            return self._past_marker(marker, scan.found)
        return scan.found.after

    def _past_marker(self, marker: str, found: MarkerFound) -> str:
        if self._headers and marker in self._headers.begins:
            self._begin_header(is_marked=True)
        elif marker in self._form.openers:
            self._begin_section(marker, "")
        else:
            self._begin_start(is_space_kept=True)
        return found.after

    def _in_section(self, text: str) -> str | None:
        section = self._section
        assert section is not None
        return self._after_section(section.feed(text))

    def _after_section(self, news: SectionNews) -> str:
        """Tells what the section made of the text; the text behind it, or what was no call."""
        for event in news.events:
            is_broken = isinstance(event, CallBroken)
            self._pieces.append(CallBroken(self._without_hidden(event.written)) if is_broken else event)
            self._has_calls = True
            if isinstance(event, CallEnded) and not self._form.is_parallel:
                self.is_over = True
                return ""
        if news.events:
            self._held = ""
        if news.rest is None:
            return ""
        space, self._held = self._held, ""
        self._section = None
        if not news.is_written:
            self._begin_start(is_space_kept=True)
            return news.rest
        self._state = _State.TEXT
        return self._written(space, news.rest)

    def _written(self, space: str, text: str) -> str:
        """What was no call is told as it stands; its opener is not looked at again, or this would never end."""
        opener = next((opener for opener in self._form.openers if text.startswith(opener)), "")
        # Another call may begin within it, and an opener that begins there is one of its own.
        told = opener if any(mark in opener for mark in self._form.hidden) else opener[:1]
        self._tell_text((space if self._is_space_kept else "") + told)
        return text[len(told) :]

    def _begin_start(self, *, is_space_kept: bool) -> None:
        self._state = _State.START
        self._held = ""
        self._space.take()
        self._is_space_kept = is_space_kept

    def _begin_header(self, *, is_marked: bool) -> None:
        self._state = _State.HEADER
        self._held = ""
        self._space.take()
        # One that began with plain words may yet turn out to be text.
        self._is_header_marked = is_marked

    def _begin_reasoning(self) -> None:
        self._state = _State.REASONING
        self._is_reasoning_begun = False

    def _begin_section(self, opener: str, space: str) -> None:
        call_format = self._form.call_format
        assert call_format is not None
        self._section = CallSection(call_format, opener, self._form.tools)
        self._held = space
        self._space.take()
        self._state = _State.SECTION

    def _tell_text(self, text: str) -> None:
        text = self._without_hidden(text)
        if text:
            self._pieces.append(TextPiece(text))

    def _tell_reasoning(self, text: str) -> None:
        """Without white space at either end of the reasoning."""
        text = self._without_hidden(text)
        inside = text.rstrip()
        space = text[len(inside) :]
        if inside and not self._is_reasoning_begun:
            inside = inside.lstrip()
        if inside:
            self._is_reasoning_begun = True
            self._pieces.append(ReasoningPiece(self._space.take() + inside))
        if self._is_reasoning_begun:
            self._space.add(space)

    def _without_hidden(self, text: str) -> str:
        for mark in self._form.hidden:
            text = text.replace(mark, "")
        return text
