"""How few tokens a text can become, known before it is tokenised: a long text takes seconds to minutes.

Says nothing where a tokenizer may drop or merge characters in ways that are not understood here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import tokenizers

from frontend.text.byte_spelling import byte_level_bytes

_KEEPING_SPLITS: Final = frozenset({"ByteLevel", "Digits", "Metaspace"})
# Canonical composition leaves at least a third of the bytes, as of a Hangul syllable in three parts.
_MOST_COMPOSED: Final = 4


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """most_bytes: of UTF-8 text that one token stands for. dropped_bytes: those that no token has."""

    most_bytes: int
    dropped_bytes: bytes

    def fewest_tokens(self, text: str) -> int:
        """The text is this many tokens or more."""
        kept = text.encode("utf-8", "replace").translate(None, self.dropped_bytes)
        return -(-len(kept) // self.most_bytes)


def token_limits(backend: tokenizers.Tokenizer) -> TokenLimits | None:
    """None when a token may stand for text of any length."""
    state = cast(dict[str, Any], msgspec.json.decode(backend.to_str()))
    vocabulary = backend.get_vocab(with_added_tokens=True)
    dropped = _dropped_bytes(state, vocabulary)
    most_composed = _most_composed(state.get("normalizer"))
    takes_spaces = any(token["lstrip"] or token["rstrip"] for token in state.get("added_tokens", ()))
    if dropped is None or most_composed is None or takes_spaces or not _keeps_all(state.get("pre_tokenizer")):
        return None
    added = {token["content"] for token in state.get("added_tokens", ())}
    # A byte-level token is spelled with a letter for each byte; all others, and added ones, as they are.
    is_spelled = state["model"].get("byte_fallback") is True
    longest = max(len(name.encode() if is_spelled or name in added else name) for name in vocabulary)
    return TokenLimits(most_composed * longest, dropped)


def _dropped_bytes(state: Mapping[str, Any], vocabulary: Mapping[str, int]) -> bytes | None:
    """Bytes without a token vanish one by one, unless they become an unknown token, which may swallow any number."""
    model = cast(Mapping[str, Any], state["model"])
    if model.get("type") != "BPE":
        return None
    if model.get("byte_fallback") is True:
        return b"" if all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)) else None
    if "ByteLevel" not in [part.get("type") for part in _parts(state.get("pre_tokenizer"))]:
        return None
    missing = [letter for letter in tokenizers.pre_tokenizers.ByteLevel.alphabet() if letter not in vocabulary]
    if missing and model.get("unk_token") is not None:
        return None
    return byte_level_bytes("".join(missing))


def _most_composed(normalizer: Mapping[str, Any] | None) -> int | None:
    """How many bytes the normalizer makes one of at most; None when it may drop some."""
    most = 1
    for part in _parts(normalizer):
        match part:
            case {"type": "NFC"}:
                most *= _MOST_COMPOSED
            case {"type": "Prepend"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
                if len(content.encode()) < len(pattern.encode()):
                    return None
            case _:
                return None
    return most


def _keeps_all(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    return all(
        part.get("type") in _KEEPING_SPLITS or (part.get("type") == "Split" and part.get("behavior") != "Removed")
        for part in _parts(pre_tokenizer)
    )


def _parts(state: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer; a Sequence may hold further ones."""
    if state is None:
        return
    if state.get("type") != "Sequence":
        yield state
        return
    for part in state.get("normalizers") or state.get("pretokenizers") or ():
        yield from _parts(part)
