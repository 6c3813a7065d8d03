"""pip as a process, with a script in its place."""

import sys
from pathlib import Path

import pytest

from engine.ctl.failure import CommandError
from engine.ctl.wheel import run_download


def download(folder: Path, text: str) -> tuple[Path, list[tuple[str, int, int]]]:
    """Runs the Python program `text` in pip's place; returns the wheel and the progress calls."""
    calls: list[tuple[str, int, int]] = []
    command = [sys.executable, "-c", text, str(folder)]
    wheel = run_download(command, "thing==1", folder, lambda *call: calls.append(call))
    return wheel, calls


def test_progress_lines_become_progress(tmp_path: Path) -> None:
    """pip's raw bar says `Progress n of m`; everything else is passed over."""
    text = (
        "import sys, pathlib\nprint('Collecting thing')\nprint('Progress 5 of 20')\nprint('Progress 20 of 20')\n"
        "(pathlib.Path(sys.argv[1]) / 'thing-1.whl').touch()\nprint('Saved')"
    )
    wheel, calls = download(tmp_path, text)
    assert wheel == tmp_path / "thing-1.whl"
    assert calls == [("downloading", 0, 0), ("downloading", 5, 20), ("downloading", 20, 20)]


def test_pips_last_error_is_the_one_line(tmp_path: Path) -> None:
    """Its warnings and tracebacks are not."""
    text = (
        "import sys\nprint('WARNING: retrying', file=sys.stderr)\n"
        "print('ERROR: Could not find a version', file=sys.stderr)\n"
        "print('ERROR: No matching distribution found for thing==1', file=sys.stderr)\nsys.exit(1)"
    )
    with pytest.raises(CommandError) as failure:
        download(tmp_path, text)
    assert failure.value.message == ("cannot fetch thing==1: ERROR: No matching distribution found for thing==1")


def test_an_end_without_a_wheel_is_a_failure(tmp_path: Path) -> None:
    """Whatever pip says, there must be a file."""
    with pytest.raises(CommandError, match="pip ended with status 0"):
        download(tmp_path, "")
