"""API keys in a file, one a line: what a key is, and how the file is read and written. Compares none."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from protocol.errors import ErrorCode, ProtocolError

WHAT_A_KEY_IS: Final = "a key is 1 to 512 letters, digits and signs of ASCII, without spaces"
# What a header can carry and no quoting can change.
_KEY: Final = re.compile(r"[!-~]{1,512}")


def is_key(text: str) -> bool:
    """Whether a text can be a key."""
    return _KEY.fullmatch(text) is not None


def read_key_file(path: Path) -> list[str]:
    """The keys; empty lines are none. Raises ProtocolError(BAD_SETTING), which names the line and never the key."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _refused(path, "is not UTF-8 text") from error
    wrong = next((number for number, line in enumerate(lines, start=1) if line and not is_key(line)), None)
    if wrong is not None:
        raise _refused(path, f"line {wrong}: {WHAT_A_KEY_IS}")
    keys = [line for line in lines if line]
    if not keys:
        # An empty file must not open the server.
        raise _refused(path, "there is no key in it; write one a line, or leave the option out")
    return keys


def write_key_file(path: Path, keys: Iterable[str]) -> None:
    """Makes the file anew, for this user's eyes only. Raises OSError."""
    # What a killed process has left there might be somebody's link.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{key}\n" for key in keys)


def _refused(path: Path, why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.BAD_SETTING, f"--api-key-file {path}: {why}")
