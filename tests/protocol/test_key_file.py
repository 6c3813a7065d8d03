"""A file of API keys: read strictly, written for one pair of eyes."""

import stat
from pathlib import Path

import pytest

from protocol.errors import ProtocolError
from protocol.key_file import read_key_file, write_key_file


def test_one_key_a_line(tmp_path: Path) -> None:
    """Spaces around a key and empty lines are nothing; what was written is what is read."""
    path = tmp_path / "keys"
    path.write_text("  alpha\n\n#beta \r\n")
    assert read_key_file(path) == ["alpha", "#beta"]
    write_key_file(path, ["one", "two"])
    assert read_key_file(path) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there is no key in it"),
        (b"\n \n", "there is no key in it"),
        (b"good\ntwo words\n", "line 2: a key is"),
        ("schlüssel".encode(), "line 1: a key is"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"k" * 513, "line 1: a key is"),
    ],
)
def test_what_is_no_key_file(tmp_path: Path, content: bytes, said: str) -> None:
    """Refused with the line, and without a word of what stands there; an empty file never opens a server."""
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ProtocolError) as refused:
        read_key_file(path)
    assert refused.value.message.startswith(f"--api-key-file {path}: {said}")
    assert "words" not in refused.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """As is any other that cannot be read."""
    with pytest.raises(ProtocolError, match="cannot be read: No such file"):
        read_key_file(tmp_path / "none")


def test_a_written_file_is_for_its_user_alone(tmp_path: Path) -> None:
    """Mode 0600, and a link that lies there is replaced, not followed."""
    path, elsewhere = tmp_path / "keys", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    path.symlink_to(elsewhere)
    write_key_file(path, ["alpha"])
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert not path.is_symlink()
    assert elsewhere.read_text() == "kept"
