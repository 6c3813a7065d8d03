"""The tokenizer's copy in the runtime folder: fetched in pieces, checked, and swapped in whole."""

from pathlib import Path

import pytest

from frontend.tokenizer_copy import ensure_tokenizer_copy, is_true_copy
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import TokenizerChunk, TokenizerFile, TokenizerManifest
from protocol.tokenizer_hash import NamedFile, tokenizer_sha256

FILES = (NamedFile("tokenizer.json", b"0123456789"), NamedFile("empty.json", b""))


def make_manifest(files: tuple[NamedFile, ...] = FILES, sha256: str | None = None) -> TokenizerManifest:
    return TokenizerManifest(
        sha256=sha256 or tokenizer_sha256(files),
        files=tuple(TokenizerFile(name=file.name, length_bytes=len(file.content)) for file in files),
    )


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class Source:
    """Serves FILES in pieces of 4 bytes; counts."""

    def __init__(self, files: tuple[NamedFile, ...] = FILES) -> None:
        self.contents = dict(files)
        self.fetches = 0

    async def fetch(self, name: str, offset_bytes: int) -> TokenizerChunk:
        self.fetches += 1
        content = self.contents[name]
        end = offset_bytes + 4
        return TokenizerChunk(
            epoch="e",
            name=name,
            offset_bytes=offset_bytes,
            data=content[offset_bytes:end],
            is_last=end >= len(content),
        )


async def test_fetches_every_piece_once(tmp_path: Path) -> None:
    """All files arrive byte for byte; the next call fetches nothing."""
    source = Source()
    folder = await ensure_tokenizer_copy(tmp_path / "tokenizers", make_manifest(), source.fetch)
    assert {file.name: (folder / file.name).read_bytes() for file in FILES} == dict(FILES)
    assert source.fetches == 4
    assert await ensure_tokenizer_copy(tmp_path / "tokenizers", make_manifest(), source.fetch) == folder
    assert source.fetches == 4
    assert names_in(tmp_path / "tokenizers") == [folder.name]


@pytest.mark.parametrize("damage", ["changed", "missing"])
async def test_untrue_copy_is_fetched_again(tmp_path: Path, damage: str) -> None:
    """A copy with a changed or a missing file is replaced."""
    source = Source()
    folder = await ensure_tokenizer_copy(tmp_path, make_manifest(), source.fetch)
    if damage == "changed":
        (folder / "tokenizer.json").write_bytes(b"01234567x9")
    else:
        (folder / "tokenizer.json").unlink()
    assert not is_true_copy(folder, make_manifest())
    assert await ensure_tokenizer_copy(tmp_path, make_manifest(), source.fetch) == folder
    assert is_true_copy(folder, make_manifest())
    assert names_in(tmp_path) == [folder.name]


async def test_wrong_hash_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Files whose hash is not the announced one are not kept."""
    with pytest.raises(ProtocolError) as caught:
        await ensure_tokenizer_copy(tmp_path, make_manifest(sha256="0" * 64), Source().fetch)
    assert caught.value.code == ErrorCode.MALFORMED_FRAME
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil.json", "/etc/evil", "a/b", "..", ""])
async def test_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """A file name with a path in it is refused before anything is fetched."""
    source = Source()
    with pytest.raises(ProtocolError):
        await ensure_tokenizer_copy(tmp_path, make_manifest((NamedFile(name, b"x"),), "0" * 64), source.fetch)
    assert source.fetches == 0


@pytest.mark.parametrize("length_bytes", [9, 11])
async def test_other_length_than_announced_is_refused(tmp_path: Path, length_bytes: int) -> None:
    """A file that is shorter or longer than the manifest says is refused."""
    manifest = TokenizerManifest(
        sha256=tokenizer_sha256(FILES[:1]), files=(TokenizerFile(name="tokenizer.json", length_bytes=length_bytes),)
    )
    with pytest.raises(ProtocolError, match="announced"):
        await ensure_tokenizer_copy(tmp_path, manifest, Source().fetch)
