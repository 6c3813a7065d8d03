"""Words to the user of a long-running command. Owns no format and no decision."""

import sys
from contextlib import suppress
from typing import TextIO


def say(text: str) -> None:
    """One line of engine-ctl's own on stderr."""
    tell(f"engine-ctl: {text}", sys.stderr)


def tell(text: str, stream: TextIO) -> None:
    """One line at once. A terminal or pipe that is gone must not end what is being served."""
    with suppress(OSError):
        print(text, file=stream, flush=True)
