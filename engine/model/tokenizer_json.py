"""The little that the engine reads of tokenizer.json: tokens' ids, and whether text gets a BOS.

Not the tokenizers library: building a tokenizer holds the interpreter lock for seconds, and with it the heartbeat.
"""

from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from engine.errors import EngineError
from protocol.errors import ErrorCode


class _AddedToken(msgspec.Struct):
    id: Annotated[int, Meta(ge=0)]
    content: str


class _SpecialPiece(msgspec.Struct):
    id: str


class _TemplatePiece(msgspec.Struct):
    """Either a special token or, with None here, the text itself."""

    special: _SpecialPiece | None = msgspec.field(name="SpecialToken", default=None)


class _PostProcessor(msgspec.Struct):
    single: list[_TemplatePiece] = []
    processors: list["_PostProcessor"] = []


class _Model(msgspec.Struct):
    vocab: msgspec.Raw


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] = []
    post_processor: _PostProcessor | None = None


# Ids by token (BPE, WordPiece, WordLevel), or tokens with scores in the order of their ids (Unigram).
_Vocabulary = dict[str, int] | list[tuple[str, float]]


class TokenizerJson:
    """A tokenizer.json, read part by part."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._added = {token.content: token.id for token in file.added_tokens}

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Raises EngineError(BAD_MODEL) when it is not the file of a tokenizer."""
        return cls(_decoded(content, _File))

    def token_id(self, token: str) -> int | None:
        """The id of a token, given as its text; None when there is none. The vocabulary is read only if needed."""
        if token in self._added:
            return self._added[token]
        vocab = _decoded(bytes(self._file.model.vocab), _Vocabulary)
        if isinstance(vocab, dict):
            return vocab.get(token)
        return next((id_ for id_, (text, _) in enumerate(vocab) if text == token), None)

    def starts_with(self, token: str) -> bool:
        """Whether the file itself puts this token before a text, as a BOS."""
        processor = self._file.post_processor
        if processor is None:
            return False
        return any(_first_special(part) == token for part in (processor, *processor.processors))


def _first_special(processor: _PostProcessor) -> str | None:
    first = processor.single[0].special if processor.single else None
    return first.id if first else None


def _decoded(content: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.DecodeError as error:  # also a ValidationError
        raise EngineError(ErrorCode.BAD_MODEL, f"tokenizer.json of the model cannot be read: {error}") from error
