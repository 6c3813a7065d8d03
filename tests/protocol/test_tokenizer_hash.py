"""The key of a tokenizer's files depends on every name, every byte and the order, and on nothing else."""

import hashlib

import pytest

from protocol.tokenizer_hash import NamedFile, tokenizer_sha256

FILES = [NamedFile("a.json", b"{}"), NamedFile("b.json", b"")]


def test_the_hash_is_as_written_in_the_protocol() -> None:
    """Name, zero byte, length as u64 little-endian, content; file after file."""
    expected = hashlib.sha256(b"a.json\0\x02\0\0\0\0\0\0\0{}b.json\0\0\0\0\0\0\0\0\0").hexdigest()
    assert tokenizer_sha256(iter(FILES)) == expected


@pytest.mark.parametrize(
    "files",
    [
        [],
        FILES[:1],
        FILES[::-1],
        [NamedFile("a.json", b"{"), NamedFile("b.json", b"}")],
        [NamedFile("a.json", b"{}b.json\0\0\0\0\0\0\0\0\0")],
        [NamedFile("A.json", b"{}"), NamedFile("b.json", b"")],
    ],
)
def test_any_difference_shows(files: list[NamedFile]) -> None:
    """No other list of files has the same key."""
    assert tokenizer_sha256(files) != tokenizer_sha256(FILES)
