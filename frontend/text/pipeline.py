"""The one text machine: token ids in, pieces that may be sent out; streamed and whole replies use the same.

Owns the way of a token: its text, what the text is part of, and when the token is told. What a reply consists of is
structure's.
"""

from dataclasses import dataclass
from typing import Final

from frontend.parsers.base import ArgumentsText
from frontend.text.detokenize import Detokenizer
from frontend.text.events import TextOutput, ToldPiece
from frontend.text.spans import TokenSpans
from frontend.text.structure import PLAIN_TEXT, Piece, ReasoningPiece, ReplyForm, ReplyStructure, StopFound, TextPiece
from frontend.text.tokenizer import Tokenizer

_TEXTS: Final = (TextPiece, ReasoningPiece, ArgumentsText)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """stops: of several, the one completed first ends the text; see MarkerScanner for ties.

    min_tokens: none of them counts that these first tokens complete. has_spans: outputs say which tokens are told.
    """

    stops: tuple[str, ...] = ()
    include_stop: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    has_spans: bool = False


class TextPipeline:
    """One choice's text. Whether ids are fed one by one or at once, the joined pieces are the same."""

    def __init__(self, tokenizer: Tokenizer, options: TextOptions, form: ReplyForm = PLAIN_TEXT) -> None:
        skipped = tokenizer.special_ids_but(form.hidden) if options.skip_special_tokens else frozenset[int]()
        self._detokenizer = Detokenizer(tokenizer, skipped)
        self._structure = ReplyStructure(form, options.stops, options.include_stop)
        self._is_stop_included = options.include_stop
        self._min_tokens = options.min_tokens
        self._stop: str | None = None
        self._consumed_tokens = 0
        self._reasoning_tokens = 0
        # The last ones, which may be the beginning of reasoning.
        self._opening_tokens = 0
        # Only for those who ask which token made which text.
        self._spans = TokenSpans() if options.has_spans else None
        self._fed_characters = 0

    def feed(self, ids: list[int]) -> TextOutput:
        """What these ids made safe to send; nothing once the reply is over."""
        told: list[ToldPiece] = []
        for id_ in ids:
            if self._structure.is_over:
                break
            self._consumed_tokens += 1
            was_in_reasoning = self._structure.is_in_reasoning
            text = self._detokenizer.feed([id_])
            self._fed_characters += len(text)
            if self._spans is not None:
                self._spans.add(len(text))
            if text:
                self._tell(self._structure.feed(text, has_stops=self._has_stops), told)
            self._count_reasoning(text, was_inside=bool(was_in_reasoning))
        return self._output(told)

    def finish(self, last: int | None = None, *, is_cut: bool = False) -> TextOutput:
        """All that is held, after the last id; text completed only here may still hold a stop string.

        last: the token that ended the row, if its text is wanted; it is none of those that are consumed and told.
        is_cut: the model would have written more.
        """
        told: list[ToldPiece] = []
        if self._structure.is_over:
            return self._output(told)
        text = "" if last is None else self._detokenizer.feed([last])
        text += self._detokenizer.finish()
        self._fed_characters += len(text)
        if self._spans is not None:
            self._spans.finish(len(text))
        self._tell(self._structure.finish(text, is_cut=is_cut, has_stops=self._has_stops), told)
        if self._spans is not None and not self._structure.is_over:
            self._tell_starts(self._spans.all_starts(), told)
        return self._output(told)

    def _count_reasoning(self, text: str, *, was_inside: bool) -> None:
        """Of the token that made this text; those that spell the beginning count once it is whole."""
        is_inside = self._structure.is_in_reasoning
        if was_inside or is_inside:
            self._reasoning_tokens += 1 + self._opening_tokens
            self._opening_tokens = 0
        elif is_inside is None and (self._opening_tokens or text.strip()):
            self._opening_tokens += 1
        else:
            self._opening_tokens = 0

    @property
    def _has_stops(self) -> bool:
        return self._consumed_tokens > self._min_tokens or not self._min_tokens

    def _tell(self, pieces: list[Piece], told: list[ToldPiece]) -> None:
        """Appends the pieces; a piece of text grows the one before it, if that is of its kind."""
        for piece in pieces:
            if isinstance(piece, StopFound):
                self._stop = piece.stop
                self._tell_starts(self._starts_before(piece), told)
            else:
                _append(piece, told)
        if self._spans is None or self._stop is not None or not pieces:
            return
        if self._structure.is_over:
            self._tell_starts(self._spans.all_starts(), told)
        elif isinstance(pieces[-1], _TEXTS):
            settled = self._fed_characters - self._structure.held_characters
            self._tell_starts(self._spans.told(settled), told)

    def _starts_before(self, stop: StopFound) -> tuple[int, ...]:
        if self._spans is None:
            return ()
        cut = self._fed_characters - stop.unread - (0 if self._is_stop_included else len(stop.stop))
        return self._spans.cut(cut)

    def _tell_starts(self, starts: tuple[int, ...], told: list[ToldPiece]) -> None:
        """With the last piece, if it is one that can have them, else with text that is empty."""
        if not starts:
            return
        if not told or not isinstance(told[-1].piece, _TEXTS):
            told.append(ToldPiece(TextPiece("")))
        piece, before = told[-1]
        told[-1] = ToldPiece(piece, before + starts)

    def _output(self, told: list[ToldPiece]) -> TextOutput:
        return TextOutput(
            tuple(told), self._stop, self._consumed_tokens, self._structure.is_over, self._reasoning_tokens
        )


def _append(piece: Piece, told: list[ToldPiece]) -> None:
    if told and isinstance(piece, _TEXTS) and type(piece) is type(told[-1].piece):
        before = told[-1].piece
        assert isinstance(before, _TEXTS)
        told[-1] = ToldPiece(type(piece)(before.text + piece.text), told[-1].starts)
    else:
        told.append(ToldPiece(piece))
