"""Words to a user who may have gone."""

import os

import pytest

from engine.ctl.terminal import say, tell


def test_says_one_line_under_the_commands_name(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr: stdout is for what scripts read."""
    say("stopping")
    assert capsys.readouterr() == ("", "engine-ctl: stopping\n")


def test_a_reader_that_is_gone_ends_nothing() -> None:
    """A closed terminal or pipe is no reason to stop serving."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(os.dup(write_end), "w")
    tell("lost", stream)
    # Closing the stream would try the lost line again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    stream.close()
    os.close(nowhere)
    os.close(write_end)
    assert stream.closed
