"""API keys from the user's flags and file to the frontends' file."""

import stat
from pathlib import Path

import pytest

from engine.ctl.api_keys import FILE_NAME, gathered_keys, hand_over
from engine.ctl.failure import EXIT_USAGE, CommandError
from protocol.endpoint import RuntimeFolder
from protocol.key_file import read_key_file


def key_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "mine"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_flags_and_file_are_added_up(tmp_path: Path) -> None:
    """In their order; neither alone is needed."""
    assert gathered_keys(("a", "b"), key_file(tmp_path, "c\n\nd\n")) == ["a", "b", "c", "d"]
    assert gathered_keys(("a",), None) == ["a"]
    assert gathered_keys((), None) == []


def test_a_wrong_key_is_refused_unseen(tmp_path: Path) -> None:
    """Wrong usage; the message has the option, and the file's line, but not the key."""
    for keys, file in ((("two words",), None), (("",), None), (("clé",), None), ((), key_file(tmp_path, "two words"))):
        with pytest.raises(CommandError, match=r"^--api-key.*a key is 1 to 512") as refused:
            gathered_keys(keys, file)
        assert refused.value.exit_code == EXIT_USAGE
        assert "two" not in refused.value.message


def test_an_empty_file_does_not_open_the_server(tmp_path: Path) -> None:
    """Who names a file wants keys to be asked for."""
    with pytest.raises(CommandError, match="there is no key in it"):
        gathered_keys(("a",), key_file(tmp_path, "\n"))


def test_a_file_that_others_may_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It works all the same."""
    assert gathered_keys((), key_file(tmp_path, "a", 0o644)) == ["a"]
    assert "chmod 600" in capsys.readouterr().err
    assert gathered_keys((), key_file(tmp_path, "a", 0o600)) == ["a"]
    assert capsys.readouterr().err == ""


def test_frontends_find_them_in_the_runtime_folder(runtime_dir: Path) -> None:
    """Mode 0600, whatever an earlier run has left there."""
    for keys in (["a", "b"], ["c"]):
        path = hand_over(keys, RuntimeFolder(runtime_dir))
        assert path == runtime_dir / FILE_NAME
        assert read_key_file(path) == keys
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path) -> None:
    """One line instead of a traceback."""
    with pytest.raises(CommandError, match="does not take api_keys: No such file"):
        hand_over(["a"], RuntimeFolder(tmp_path / "gone"))
