"""How engine-ctl fails: one line for the user and an exit status. Owns no printing."""

from pathlib import Path
from typing import Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_RUNNING: Final = 3


class CommandError(Exception):
    """A command that cannot go on; `message` is the one line that the user sees."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def not_running(folder: Path) -> CommandError:
    """No engine is heard in a runtime folder; the one that is meant may run in another."""
    message = f"nothing runs in {folder}; start it with `engine-ctl serve`, or name another folder with --runtime-dir"
    return CommandError(message, EXIT_NOT_RUNNING)
