"""Fixtures that several folders of tests use."""

from engine import openblas  # isort: skip  # noqa: F401  # before whichever test imports MLX first

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# On a busy machine an example takes any time; each test as a whole has its limit.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """A private folder with a path short enough for sockets; pytest's own tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name:
        yield Path(name)
