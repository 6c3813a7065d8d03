"""Fetches one wheel with pip, so that the user's own index, proxy and certificates count. Unpacks nothing."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from engine.ctl.failure import CommandError
from engine.ctl.progress import ReportProgress

_RAW_PROGRESS: Final = re.compile(r"Progress (\d+) of (\d+)")
_OPTIONS: Final = (
    "--no-deps",
    "--only-binary=:all:",
    "--progress-bar=raw",
    "--disable-pip-version-check",
    "--no-input",
)


def fetch_wheel(requirement: str, folder: Path, progress: ReportProgress) -> Path:
    """The wheel of `requirement`, downloaded into `folder`. Raises CommandError with pip's last error line."""
    command = [sys.executable, "-m", "pip", "download", *_OPTIONS, "--dest", str(folder), requirement]
    return run_download(command, requirement, folder, progress)


def run_download(command: list[str], requirement: str, folder: Path, progress: ReportProgress) -> Path:
    """Runs pip's `command`, turning its `Progress n of m` lines into progress calls (bytes)."""
    progress("downloading", 0, 0)
    last_error = ""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = _RAW_PROGRESS.fullmatch(line.strip())
            if found:
                progress("downloading", int(found[1]), int(found[2]))
            elif line.startswith("ERROR") or (not last_error and "No module named" in line):
                last_error = line.strip()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode or not wheels:
        why = last_error or f"pip ended with status {process.returncode}"
        raise CommandError(f"cannot fetch {requirement}: {why}")
    return wheels[0]
