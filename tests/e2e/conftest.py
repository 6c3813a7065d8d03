"""The e2e suite's one fixture: the same cases run on the FakeEngine and on the real one."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, running_cluster


@pytest.fixture(scope="session", params=["fake", pytest.param("real", marks=pytest.mark.real_model)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An engine and two frontends, shared by all cases of one kind."""
    with (
        tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name,
        running_cluster(request.param, Path(name)) as found,
    ):
        yield found
