"""A log line is an event name and fields, one line whatever the fields hold."""

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from protocol.logs import LineFormatter, setup_logging


def _line(event: str, **fields: object) -> str:
    record = logging.makeLogRecord({"name": "engine.loop", "levelname": "INFO", "msg": event, **fields})
    words = LineFormatter().format(record).split(" ")
    return " ".join(words[2:])


@pytest.fixture
def _root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        (7, "7"),
        (1.23456, "1.235"),
        (True, "True"),
        (None, "None"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("first\nsecond\r\tthird", '"first\\nsecond\\r\\tthird"'),
        ("ünïcode", "ünïcode"),
        ((1, 2), '"(1, 2)"'),
    ],
)
def test_a_field_is_one_word_or_quoted(value: object, shown: str) -> None:
    """No value can break the line or forge another field."""
    assert _line("row.finished", value=value) == f"INFO engine.loop row.finished value={shown}"


def test_fields_keep_their_order() -> None:
    """A line reads as its call was written."""
    assert _line("row.finished", id="a", tokens=3) == "INFO engine.loop row.finished id=a tokens=3"


def test_the_time_comes_first() -> None:
    """Date, time with milliseconds, level, logger, event."""
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "m", "created": 0.5, "msecs": 500.0})
    assert LineFormatter().format(record).split(" ")[1].endswith(".500")


def test_an_exception_follows_its_line() -> None:
    """The traceback is kept."""
    try:
        raise ValueError("no such row")
    except ValueError:
        record = logging.makeLogRecord({"name": "n", "levelname": "ERROR", "msg": "m", "exc_info": sys.exc_info()})
    first, *rest = LineFormatter().format(record).splitlines()
    assert first.endswith("ERROR n m")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: no such row"


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize(("level", "shown"), [("info", 1), ("WARNING", 0)])
def test_setup_sends_lines_to_stderr_from_the_level_on(monkeypatch: pytest.MonkeyPatch, level: str, shown: int) -> None:
    """One handler, on stderr, for every logger; the level's case does not matter."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    setup_logging(level)
    logging.getLogger("frontend.app").info("server.started", extra={"port": 8_080})
    assert stderr.getvalue().count("INFO frontend.app server.started port=8080\n") == shown


@pytest.mark.usefixtures("_root")
def test_setup_refuses_an_unknown_level() -> None:
    """A level that logging does not know is an error, not a silence."""
    with pytest.raises(ValueError, match="Unknown level: 'LOUD'"):
        setup_logging("loud")
