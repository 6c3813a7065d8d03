"""The tokenizer's files as clients get them: read once at start, told in a manifest, sent in pieces.

Owns which files those are and their check at start; turns no text into tokens.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from transformers import AutoTokenizer

from engine.errors import EngineError
from engine.model.tokenizer_json import TokenizerJson
from protocol.codec import MAX_CHUNK_BYTES
from protocol.errors import ErrorCode
from protocol.messages import Epoch, TokenizerChunk, TokenizerFile, TokenizerManifest
from protocol.template_files import DEFAULT_TEMPLATE_FILE, template_file
from protocol.tokenizer_hash import NamedFile, tokenizer_sha256

TOKENIZER_NAME: Final = "tokenizer.json"
CONFIG_NAME: Final = "tokenizer_config.json"
# What a client needs to turn text into tokens and back, and chats into text; the order of the manifest.
_NAMES: Final = (
    TOKENIZER_NAME,
    CONFIG_NAME,
    "special_tokens_map.json",
    DEFAULT_TEMPLATE_FILE,
    "chat_template.json",
)
# Where models keep templates beside the default: `tool_use`, `rag`.
_TEMPLATES: Final = "additional_chat_templates"
# Vocabularies that transformers converts. Without any of them it would make an empty tokenizer.
_SOURCES: Final = ("*.model", "vocab.json", "vocab.txt", "*.tiktoken", "tekken.json")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerPiece:
    """data: at most MAX_CHUNK_BYTES of the file from offset_bytes on."""

    name: str
    offset_bytes: int
    data: bytes
    is_last: bool

    def message(self, epoch: Epoch) -> TokenizerChunk:
        """The piece as the wire carries it."""
        return TokenizerChunk(
            epoch=epoch, name=self.name, offset_bytes=self.offset_bytes, data=self.data, is_last=self.is_last
        )


class TokenizerFiles:
    """The files in memory, unchanged while the engine runs. Answers FetchTokenizer."""

    def __init__(self, files: tuple[NamedFile, ...]) -> None:
        self._contents = {file.name: file.content for file in files}
        self.manifest = TokenizerManifest(
            sha256=tokenizer_sha256(files),
            files=tuple(TokenizerFile(name=file.name, length_bytes=len(file.content)) for file in files),
        )

    @classmethod
    def read(cls, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """All tokenizer files of a model folder. Raises EngineError(BAD_MODEL) when they make no tokenizer."""
        files = [NamedFile(name, (folder / name).read_bytes()) for name in _NAMES if (folder / name).is_file()]
        files += [
            NamedFile(template_file(path.stem), path.read_bytes())
            for path in sorted(folder.glob(f"{_TEMPLATES}/*.jinja"))
        ]
        if not any(file.name == TOKENIZER_NAME for file in files):
            files.insert(0, NamedFile(TOKENIZER_NAME, _convert(folder, trust_remote_code)))
        return cls(tuple(files))

    def content(self, name: str) -> bytes | None:
        """A whole file; None when the model has no such file."""
        return self._contents.get(name)

    def tokenizer_json(self) -> TokenizerJson:
        """What the engine reads of tokenizer.json. Raises EngineError(BAD_MODEL) when it is broken."""
        return TokenizerJson.read(self._contents[TOKENIZER_NAME])

    def chunk(self, name: str, offset_bytes: int) -> TokenizerPiece:
        """At most MAX_CHUNK_BYTES of a file from offset_bytes on; an empty file has one empty piece.

        Raises EngineError(INVALID_REQUEST) for a name or an offset that the manifest does not have.
        """
        content = self._contents.get(name)
        if content is None:
            raise EngineError(ErrorCode.INVALID_REQUEST, f"no tokenizer file is named {name!r}", param="name")
        if not 0 <= offset_bytes < max(len(content), 1):
            raise EngineError(
                ErrorCode.INVALID_REQUEST,
                f"offset {offset_bytes} is outside {name}, which has {len(content)} bytes",
                param="offset_bytes",
            )
        stop = offset_bytes + MAX_CHUNK_BYTES
        return TokenizerPiece(
            name=name,
            offset_bytes=offset_bytes,
            data=content[offset_bytes:stop],
            is_last=stop >= len(content),
        )


def _convert(folder: Path, trust_remote_code: bool) -> bytes:
    """tokenizer.json of a model that carries its vocabulary in an older form."""
    if not any(next(folder.glob(pattern), None) for pattern in _SOURCES):
        raise EngineError(ErrorCode.BAD_MODEL, f"no tokenizer in {folder}: {TOKENIZER_NAME} is missing")
    vocabulary = folder / "vocab.json"
    try:
        if vocabulary.is_file():
            # tokenizers raises a bare Exception for a broken one.
            json.loads(vocabulary.read_bytes())
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
        text: str = tokenizer.backend_tokenizer.to_str()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(
            ErrorCode.BAD_MODEL, f"no {TOKENIZER_NAME} in {folder}, and none can be made: {reason}"
        ) from error
    log.info("tokenizer.converted", extra={"folder": str(folder), "length_bytes": len(text.encode())})
    return text.encode()
