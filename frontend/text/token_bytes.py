"""The exact bytes of single tokens, also of those that are half a character; texts are the detokenizer's."""

from collections.abc import Mapping
from typing import Any, cast

from frontend.text.byte_spelling import byte_level_bytes, fallback_byte
from frontend.text.tokenizer import Tokenizer


class TokenBytes:
    """Looks each token up once. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, bytes] = {}
        state = tokenizer.decoder_state
        self._is_byte_level = state.get("type") == "ByteLevel"
        self._has_byte_fallback = any(part.get("type") == "ByteFallback" for part in _parts(state))

    def of(self, id_: int) -> bytes:
        """What the token adds to a text; a special token, its name; nothing for an id without a text."""
        known = self._known.get(id_)
        if known is None:
            known = self._known[id_] = self._looked_up(id_)
        return known

    def _looked_up(self, id_: int) -> bytes:
        spelling = self._tokenizer.token_text(id_)
        if spelling is None:
            return b""
        if self._is_byte_level:
            return byte_level_bytes(spelling)
        byte = fallback_byte(spelling) if self._has_byte_fallback else None
        if byte is not None:
            return bytes([byte])
        # Decoders drop a leading space at the beginning of a text, so the token is read behind itself.
        once, twice = (self._tokenizer.decode([id_] * count, False) for count in (1, 2))
        return (twice[len(once) :] if twice.startswith(once) else once).encode()


def _parts(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], state.get("decoders", [state]))
