"""The API keys on their way from the user to the frontends: through a file of the user's own, never a command line."""

import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.terminal import say
from protocol.endpoint import RuntimeFolder
from protocol.errors import ProtocolError
from protocol.key_file import WHAT_A_KEY_IS, is_key, read_key_file, write_key_file

FILE_NAME: Final = "api_keys"


def gathered_keys(keys: Iterable[str], file: str | None) -> list[str]:
    """The keys of the flags and of the file, one a line there. Raises CommandError, which shows none of them."""
    found = list(keys)
    if not all(map(is_key, found)):
        raise CommandError(f"--api-key: {WHAT_A_KEY_IS}", EXIT_USAGE)
    if file is None:
        return found
    path = Path(file).expanduser()
    try:
        found += read_key_file(path)
    except ProtocolError as error:
        raise CommandError(error.message, EXIT_USAGE) from error
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        say(f"warning: other users may read the keys in {path} (mode {mode:04o}); run chmod 600 on it")
    return found


def hand_over(keys: Iterable[str], folder: RuntimeFolder) -> Path:
    """Writes the keys to where the frontends find them. Raises CommandError."""
    path = folder.path / FILE_NAME
    try:
        write_key_file(path, keys)
    except OSError as error:
        raise CommandError(f"runtime folder {folder.path} does not take {FILE_NAME}: {error.strerror}") from error
    return path
