"""The tokenizer's files in memory, their manifest and their pieces."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from engine.errors import EngineError
from engine.model.tokenizer_files import TokenizerFiles
from protocol.codec import MAX_CHUNK_BYTES, decode_from_engine, encode
from protocol.errors import ErrorCode
from protocol.messages import Epoch, TokenizerChunk
from protocol.tokenizer_hash import NamedFile, tokenizer_sha256

WORDS = {"<s>": 0, "</s>": 1, "a": 2, "b": 3}


def write_tokenizer(folder: Path) -> bytes:
    Tokenizer(models.WordLevel(WORDS, unk_token="a")).save(str(folder / "tokenizer.json"))
    return (folder / "tokenizer.json").read_bytes()


def test_the_manifest_names_what_a_client_needs(tmp_path: Path) -> None:
    """In a fixed order, without weights and config."""
    tokenizer = write_tokenizer(tmp_path)
    for name in ("chat_template.jinja", "tokenizer_config.json", "config.json", "model.safetensors", "README.md"):
        (tmp_path / name).write_text(f"content of {name}")
    files = TokenizerFiles.read(tmp_path)
    assert [(file.name, file.length_bytes) for file in files.manifest.files] == [
        ("tokenizer.json", len(tokenizer)),
        ("tokenizer_config.json", len("content of tokenizer_config.json")),
        ("chat_template.jinja", len("content of chat_template.jinja")),
    ]
    assert files.content("chat_template.jinja") == b"content of chat_template.jinja"
    assert files.content("config.json") is None


def test_named_templates_have_plain_names(tmp_path: Path) -> None:
    """Of a folder of theirs, in the order of their names; no other file of it."""
    write_tokenizer(tmp_path)
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    for name in ("tool_use.jinja", "rag.jinja", "notes.txt"):
        (folder / name).write_text(f"content of {name}")
    files = TokenizerFiles.read(tmp_path)
    assert [file.name for file in files.manifest.files] == [
        "tokenizer.json",
        "chat_template.rag.jinja",
        "chat_template.tool_use.jinja",
    ]
    assert files.content("chat_template.tool_use.jinja") == b"content of tool_use.jinja"


def test_the_hash_is_of_what_a_client_receives(tmp_path: Path) -> None:
    """Pieces put together in the manifest's order give the manifest's hash."""
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_bytes(b"x" * (2 * MAX_CHUNK_BYTES + 5))
    files = TokenizerFiles.read(tmp_path)
    received = [NamedFile(file.name, fetch(files, file.name)) for file in files.manifest.files]
    assert tokenizer_sha256(received) == files.manifest.sha256


def fetch(files: TokenizerFiles, name: str) -> bytes:
    """What a client puts together over the wire."""
    content = b""
    while True:
        message = decode_from_engine(encode(files.chunk(name, len(content)).message(Epoch("e"))))
        assert isinstance(message, TokenizerChunk)
        assert (message.name, message.offset_bytes) == (name, len(content))
        content += message.data
        if message.is_last:
            return content


@pytest.mark.parametrize("size_bytes", [0, 1, MAX_CHUNK_BYTES - 1, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1])
def test_pieces_make_the_whole_file(size_bytes: int) -> None:
    """Also at the limit of a piece, and for an empty file."""
    content = bytes(index % 251 for index in range(size_bytes))
    files = TokenizerFiles((NamedFile("f", content),))
    assert fetch(files, "f") == content
    assert len(files.chunk("f", 0).data) == min(size_bytes, MAX_CHUNK_BYTES)


@pytest.mark.parametrize(("name", "offset_bytes"), [("g", 0), ("../f", 0), ("f", 3), ("f", 4), ("f", 2**50)])
def test_what_is_not_in_the_manifest_is_refused(name: str, offset_bytes: int) -> None:
    """An unknown name or an offset outside the file; never a file of the disk."""
    files = TokenizerFiles((NamedFile("f", b"abc"),))
    with pytest.raises(EngineError) as caught:
        files.chunk(name, offset_bytes)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_model_without_tokenizer_is_refused(tmp_path: Path) -> None:
    """transformers would make an empty one."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    with pytest.raises(EngineError, match="no tokenizer in") as caught:
        TokenizerFiles.read(tmp_path)
    assert caught.value.code == ErrorCode.BAD_MODEL


def test_an_older_vocabulary_is_converted(tmp_path: Path) -> None:
    """vocab.json and merges.txt become a tokenizer.json that works."""
    vocabulary = {"h": 0, "i": 1, "hi": 2, "<|endoftext|>": 3}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh i\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    files = TokenizerFiles.read(tmp_path)
    assert [file.name for file in files.manifest.files] == ["tokenizer.json", "tokenizer_config.json"]
    content = files.content("tokenizer.json")
    assert content is not None
    assert Tokenizer.from_buffer(content).encode("hihi").ids == [2, 2]


def test_an_older_vocabulary_that_is_broken_is_refused(tmp_path: Path) -> None:
    """One line with the reason."""
    (tmp_path / "vocab.json").write_text("{")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh i\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(EngineError, match="none can be made") as caught:
        TokenizerFiles.read(tmp_path)
    assert caught.value.code == ErrorCode.BAD_MODEL
    assert "\n" not in caught.value.message
