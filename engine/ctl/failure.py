"""How engine-ctl fails: one line for the user and an exit status. Owns no printing."""

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
