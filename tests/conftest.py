"""Fixtures that several folders of tests use."""

from engine import openblas  # isort: skip  # noqa: F401  # before whichever test imports MLX first

import re
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# On a busy machine an example takes any time; each test as a whole has its limit.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


# Of a test that one of the two kinds of cluster serves.
_SERVED = re.compile(r"tests/(e2e|clients)/.*\[(?:.*-)?(fake|real)(?:-.*)?\]")


class _InGroups(LoadScopeScheduling):
    """Which tests go to one process together, with `-n`."""

    def _split_scope(self, nodeid: str) -> str:
        """A file's tests, which share what it makes, or those of a folder that one cluster serves."""
        served = _SERVED.fullmatch(nodeid)
        return f"{served[1]} {served[2]}" if served else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """In the order of the folders, whose last files are quick: by the number of tests a long one could come last."""
    config.option.loadscopereorder = False
    return _InGroups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test logged may hold half a character, which xdist can send to nobody, and the run would end."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_encodable, value))
    return value


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """A private folder with a path short enough for sockets; pytest's own tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name:
        yield Path(name)
