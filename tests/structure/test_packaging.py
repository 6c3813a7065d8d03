"""The wheel, the pinned requirements and the project's metadata agree."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.structure.sources import PACKAGES, ROOT, files, imported_modules, python_files

PIN = re.compile(r'([a-z0-9-]+)==([0-9][\w.+]*)( ; sys_platform == "(?:linux|darwin)")?')


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """Version by canonical name."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, found, strict=True) if match is None] == []
    return {match[1]: match[2] for match in found if match}


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    """The [project] table."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(project: dict[str, object]) -> list[Requirement]:
    """What must be pinned: the runtime's and the developer's requirements."""
    dependencies, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list)
    assert isinstance(extras, dict)
    return [Requirement(text) for text in [*dependencies, *extras["dev"]]]


def test_each_declared_requirement_is_pinned_within_its_bounds(
    project: dict[str, object], pins: dict[str, str]
) -> None:
    """The lock holds what pyproject.toml asks for."""
    for requirement in declared(project):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, requirement
        assert requirement.specifier.contains(version), requirement


def test_the_lock_is_complete(project: dict[str, object], pins: dict[str, str]) -> None:
    """Nothing that an installed requirement needs here is left to chance."""
    waiting, seen = declared(project), set[tuple[str, frozenset[str]]]()
    missing: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if key in seen or not is_wanted:
            continue
        seen.add(key)
        if key[0] not in pins:
            missing.add(key[0])
        waiting += needs_of(key[0], requirement.extras)
    assert missing == set()


def needs_of(name: str, extras: set[str]) -> list[Requirement]:
    """What an installed distribution requires here, with these of its extras."""
    try:
        texts = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    found = [Requirement(text) for text in texts]
    environments = [{"extra": extra} for extra in ("", *extras)]
    wanted = [need for need in found if need.marker is None or any(map(need.marker.evaluate, environments))]
    for need in wanted:
        need.marker = None
    return wanted


def foreign_distributions(*folders: str) -> set[str]:
    """The distributions whose modules these folders import."""
    owners = packages_distributions()
    top = {module.partition(".")[0] for name in python_files(*folders) for module in imported_modules(name)}
    foreign = top - set(sys.stdlib_module_names) - {*PACKAGES, "bench", "tests"}
    return {canonicalize_name(owner) for module in foreign for owner in owners[module]}


def test_every_import_is_declared(project: dict[str, object], pins: dict[str, str]) -> None:
    """The packages import runtime requirements only; tests and benches what is pinned."""
    dependencies = project["dependencies"]
    assert isinstance(dependencies, list)
    runtime = {canonicalize_name(Requirement(text).name) for text in dependencies}
    # MLX's modules lie in its build for the platform, which the `mlx` requirement brings.
    assert foreign_distributions(*PACKAGES) - runtime - {"mlx-cpu", "mlx-metal"} == set()
    assert foreign_distributions("bench", "tests") - set(pins) == set()


def test_the_lock_serves_both_systems() -> None:
    """Linux gets MLX's CPU build, a Mac the Metal one; neither gets the other's."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines if line.endswith('sys_platform == "linux"')] == ["mlx-cpu"]
    assert [line.partition("==")[0] for line in lines if line.endswith('sys_platform == "darwin"')] == ["mlx-metal"]


def test_the_wheel_holds_exactly_our_packages(tmp_path: Path) -> None:
    """It builds without a network, holds every module, and nothing beside the four packages."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = archive.read("mlx_convoy-0.1.0.dist-info/entry_points.txt").decode()
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, "mlx_convoy-0.1.0.dist-info"}
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {str(name) for name in python_files(*PACKAGES)}
    sources = {str(name) for name in files() if name.parts[:2] == ("frontend", "page")}
    assert {name for name in names if name.startswith("frontend/page/")} == sources
    assert "engine-ctl = engine.ctl.app:main" in entry_points


def test_python_versions_agree(project: dict[str, object]) -> None:
    """The oldest Python is the same for packaging, ruff and pyright."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert project["requires-python"] == ">=3.11"
    assert (tools["ruff"]["target-version"], tools["pyright"]["pythonVersion"]) == ("py311", "3.11")
