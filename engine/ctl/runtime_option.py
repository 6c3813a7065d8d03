"""The option that says which running engine a command means: its runtime folder."""

from pathlib import Path
from typing import Annotated

import typer

from protocol.endpoint import RuntimeFolder, default_runtime_path

RuntimeDir = Annotated[
    Path | None,
    typer.Option("--runtime-dir", help=f"folder for sockets, locks and state [default: {default_runtime_path()}]"),
]


def runtime_folder(path: Path | None) -> RuntimeFolder:
    """The folder that was named, or the user's own; it need not exist."""
    return RuntimeFolder((path or default_runtime_path()).expanduser().absolute())
