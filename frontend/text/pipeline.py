"""The one text machine: token ids in, text that may be sent out; streamed and whole replies use the same.

Today its only markers are stop strings. Reasoning and tool markers are further markers of the same
scanner, chosen by the machine's state, never a second pass over the text.
"""

from frontend.text.detokenize import Detokenizer
from frontend.text.events import TextOutput
from frontend.text.markers import MarkerScanner
from frontend.text.spans import TokenSpans
from frontend.text.tokenizer import Tokenizer


class TextPipeline:
    """One choice's text. Whether ids are fed one by one or at once, the joined text is the same.

    Of several stop strings, the one completed first ends the text; see MarkerScanner for ties.
    has_spans: outputs say which tokens are told.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: tuple[str, ...],
        include_stop: bool,
        skip_special_tokens: bool,
        has_spans: bool = False,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens)
        self._scanner = MarkerScanner(stops)
        self._is_stop_included = include_stop
        self._stop: str | None = None
        self._consumed_tokens = 0
        # Only for those who ask which token made which text.
        self._spans = TokenSpans() if has_spans else None
        self._told_characters = 0

    def feed(self, ids: list[int]) -> TextOutput:
        """Text that these ids made safe to send; nothing once a stop string was found."""
        parts: list[str] = []
        for id_ in ids:
            if self._stop is not None:
                break
            self._consumed_tokens += 1
            piece = self._detokenizer.feed([id_])
            if self._spans is not None:
                self._spans.add(len(piece))
            parts.append(self._scan(piece))
        return self._output("".join(parts))

    def finish(self) -> TextOutput:
        """All held text, after the last id; text completed only here may still hold a stop string."""
        if self._stop is not None:
            return self._output("")
        piece = self._detokenizer.finish()
        if self._spans is not None:
            self._spans.finish(len(piece))
        text = self._scan(piece)
        return self._output(text + self._scanner.finish())

    def _scan(self, piece: str) -> str:
        if not piece:
            return ""
        scan = self._scanner.feed(piece)
        if scan.found is None:
            return scan.before
        self._stop = self._scanner.markers[scan.found.marker]
        return scan.before + (self._stop if self._is_stop_included else "")

    def _output(self, text: str) -> TextOutput:
        return TextOutput(text, self._stop, self._consumed_tokens, self._starts_told_with(text))

    def _starts_told_with(self, text: str) -> tuple[int, ...]:
        if self._spans is None:
            return ()
        self._told_characters += len(text)
        if self._stop is not None:
            return self._spans.cut(self._told_characters)
        return self._spans.told(self._told_characters)
