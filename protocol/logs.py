"""Log lines: a fixed event name and fields, one line each, to stderr."""

import logging
import sys
from typing import Final

import msgspec

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,000 INFO engine.loop row.finished id=… tokens=…`."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        """One line, plus the traceback of an exception."""
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
        words = [self.formatTime(record), record.levelname, record.name, record.getMessage()]
        words += [f"{key}={_shown(value)}" for key, value in fields.items()]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def setup_logging(level: str) -> None:
    """Sends every logger's lines to stderr. level: a standard level name, any case."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    is_plain = text and not any(character in text for character in ' "=\n\r\t')
    return text if is_plain else msgspec.json.encode(text).decode()
