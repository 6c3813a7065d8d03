"""Fixtures that several folders of tests use."""

from engine import openblas  # isort: skip  # noqa: F401  # before whichever test imports MLX first

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """A private folder with a path short enough for sockets; pytest's own tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name:
        yield Path(name)
