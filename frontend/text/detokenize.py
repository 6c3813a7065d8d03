"""Ids to text, one by one: each token costs the same however long the text is, and no half character leaves.

Joined, the pieces are what the tokenizer decodes from all ids at once, with one exception: characters
that a byte-fallback run had completed before it turned out invalid stay as they were sent.
"""

import codecs
from typing import Any, Final, Protocol, cast

from frontend.text.byte_spelling import byte_level_bytes, fallback_byte
from frontend.text.tokenizer import Tokenizer

# Text that looks unfinished is sent all the same after this many tokens: a stream must not stand still.
MAX_HELD_TOKENS: Final = 8
_REPLACEMENT: Final = "\ufffd"


class _Pieces(Protocol):
    """How one kind of decoder spells out its tokens."""

    def add(self, id_: int, spelling: str) -> str:
        """Text that became certain with this token."""
        ...

    def finish(self) -> str:
        """Text that was held; an unfinished character becomes U+FFFD."""
        ...


class Detokenizer:
    """One choice's text, without the skipped ids. Feeding ids at once or one by one gives the same text."""

    def __init__(self, tokenizer: Tokenizer, skipped_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._skipped_ids = skipped_ids
        self._pieces = _pieces_for(tokenizer)

    def feed(self, ids: list[int]) -> str:
        """Text that these tokens completed; may be empty."""
        return "".join([self._add(id_) for id_ in ids])

    def finish(self) -> str:
        """The rest, after the last token."""
        return self._pieces.finish()

    def _add(self, id_: int) -> str:
        spelling = None if id_ in self._skipped_ids else self._tokenizer.token_text(id_)
        return "" if spelling is None else self._pieces.add(id_, spelling)


def _pieces_for(tokenizer: Tokenizer) -> _Pieces:
    state = tokenizer.decoder_state
    if state.get("type") == "ByteLevel":
        return _ByteLevelPieces()
    parts = cast(list[dict[str, Any]], state.get("decoders", [state]))
    has_byte_fallback = any(part.get("type") == "ByteFallback" for part in parts)
    return _ContextPieces(tokenizer, has_byte_fallback)


class _ByteLevelPieces:
    """Each token is a string of bytes, and the text is their UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id_: int, spelling: str) -> str:
        return self._decoder.decode(byte_level_bytes(spelling))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _ContextPieces:
    """Any other decoder: a token's text is what it adds to the text of the tokens just before it.

    The context keeps a word's leading space, which decoders drop at the start of a text. Byte tokens
    (`<0xE2>`) wait until they complete a character. A run of them with an invalid byte is decoded as
    one U+FFFD a byte, to its end.
    """

    def __init__(self, tokenizer: Tokenizer, has_byte_fallback: bool) -> None:
        self._tokenizer = tokenizer
        self._has_byte_fallback = has_byte_fallback
        self._context: list[int] = []
        self._context_text = ""
        self._held: list[int] = []
        self._held_bytes = b""
        self._is_run_broken = False

    def add(self, id_: int, spelling: str) -> str:
        byte = fallback_byte(spelling) if self._has_byte_fallback else None
        if byte is None:
            before = self._end_run()
            self._held.append(id_)
            return before + self._release(len(self._held) >= MAX_HELD_TOKENS)
        before = "" if self._held_bytes else self._release(is_forced=True)
        return before + self._add_byte(id_, byte)

    def finish(self) -> str:
        return self._end_run() + self._release(is_forced=True)

    def _add_byte(self, id_: int, byte: int) -> str:
        self._held.append(id_)
        self._held_bytes += bytes([byte])
        if self._is_run_broken:
            return self._give_up_bytes()
        try:
            self._held_bytes.decode()
        except UnicodeDecodeError as error:
            is_unfinished = error.end == len(self._held_bytes) and error.reason == "unexpected end of data"
            if is_unfinished:
                return ""
            self._is_run_broken = True
            return self._give_up_bytes()
        self._held_bytes = b""
        return self._release(is_forced=True)

    def _end_run(self) -> str:
        self._is_run_broken = False
        return self._give_up_bytes()

    def _give_up_bytes(self) -> str:
        """Held bytes never become a character: each is told as U+FFFD, and the last of them is the context."""
        count = len(self._held_bytes)
        if count:
            self._set_context(self._held[-1:])
            self._held_bytes = b""
        return _REPLACEMENT * count

    def _release(self, is_forced: bool) -> str:
        """The held tokens' text, unless it may be half a character."""
        if not self._held:
            return ""
        text = self._decode(self._context + self._held)
        # A decoder that rewrites what was already sent cannot be followed: the tokens then speak for themselves.
        is_added = text.startswith(self._context_text)
        added = text[len(self._context_text) :] if is_added else self._decode(self._held)
        if added.endswith(_REPLACEMENT) and not is_forced:
            return ""
        self._set_context(self._held)
        return added

    def _set_context(self, ids: list[int]) -> None:
        self._context = ids
        self._context_text = self._decode(ids)
        self._held = []

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, False)
