"""A SentencePiece vocabulary of a GGUF file as a tokenizers BPE with byte fallback, such as Gemma's.

Merges are made from the pieces' scores in the way in which transformers makes them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from engine.ctl.failure import CommandError
from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_token_types import TokenType, token_types

_SPACE: Final = "▁"
# SentencePiece's own score of a piece that the trainer was given; GGUF files say -1000.
_GIVEN_SCORE: Final = 0.0


def sentencepiece_tokenizer(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    """Token `i` of `tokens` gets id `i`. Raises CommandError on what it cannot map exactly."""
    if metadata.get("tokenizer.ggml.add_space_prefix", bool, default=True):
        raise CommandError("the GGUF file's tokenizer puts a space before a text, which is not converted")
    types = token_types(metadata, tokens)
    scores = metadata.get_list("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise CommandError(f"the GGUF file has {len(tokens)} tokens, but {len(scores)} scores")
    # GGUF spells the spaces of given pieces out.
    pieces = [
        _Piece(token.replace(" ", _SPACE), _GIVEN_SCORE) if type_ is TokenType.USER_DEFINED else _Piece(token, score)
        for token, type_, score in zip(tokens, types, scores, strict=True)
    ]
    vocabulary = {piece.text: id_ for id_, piece in enumerate(pieces)}
    if len(vocabulary) != len(tokens):
        raise CommandError("the GGUF file's vocabulary has the same token twice")
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", int)]
    tokenizer = Tokenizer(
        BPE(vocab=vocabulary, merges=_merges(pieces, vocabulary), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
    added = [
        AddedToken(piece.text, special=type_ is TokenType.CONTROL, normalized=False)
        for piece, type_ in zip(pieces, types, strict=True)
        if type_ in (TokenType.CONTROL, TokenType.USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    _begin(tokenizer, metadata, tokens)
    return tokenizer


class _Piece(NamedTuple):
    text: str
    score: float


class _Merge(NamedTuple):
    left: str
    right: str
    score: float


def _merges(pieces: list[_Piece], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Best first: by the score of what they make, then longer halves before shorter ones."""
    found = [merge for piece in pieces for merge in _ways_to(piece, vocabulary)]
    found.sort(key=lambda merge: (merge.score, len(merge.left), len(merge.right)), reverse=True)
    return [(merge.left, merge.right) for merge in found]


def _ways_to(piece: _Piece, vocabulary: dict[str, int]) -> Iterator[_Merge]:
    """Each pair of tokens that make the piece, in the order of their ids."""
    halves = [(piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text))]
    known = [(left, right) for left, right in halves if left in vocabulary and right in vocabulary]
    for left, right in sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]])):
        yield _Merge(left, right, piece.score)


def _begin(tokenizer: Tokenizer, metadata: Metadata, tokens: list[str]) -> None:
    """Puts the BOS before every text, where the file says so."""
    if not metadata.get("tokenizer.ggml.add_bos_token", bool, default=False):
        return
    bos_id = metadata.get("tokenizer.ggml.bos_token_id", int)
    bos = tokens[bos_id]
    tokenizer.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)]
    )
