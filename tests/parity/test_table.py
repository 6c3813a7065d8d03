"""C8: what batches and what does not is named beforehand, and each behaviour has its test."""

import ast
from pathlib import Path

from tests.parity.architectures import ARCHITECTURES
from tests.parity.kinds import HELD
from tests.parity.table import README, table

SERIAL: set[str] = set()


def test_the_readme_says_what_the_engine_finds() -> None:
    """The table in the README is what the kinds declare and the probe proves, model by model."""
    assert table() == README.read_text(encoding="utf-8")


def test_only_named_models_are_served_serially() -> None:
    """A model that falls back to serial without being named is a fault."""
    served = {cells[1].strip(): cells[3].strip() for cells in map(_cells, README.read_text("utf-8").splitlines())}
    assert {name for name in ARCHITECTURES if served[name] == "serial"} == SERIAL
    assert {name for name, architecture in ARCHITECTURES.items() if not architecture.batches} == SERIAL


def _cells(line: str) -> list[str]:
    return [*line.split("|"), "", "", "", ""]


def test_every_test_that_is_named_exists() -> None:
    """A behaviour whose test was renamed or removed is no longer held."""
    tests = Path(__file__).parents[1]
    named = [held.test.split("::") for held in HELD]
    missing = [name for file, name in named if name not in _functions(tests / file)]
    assert missing == []
    assert {f"C{number}" for number in range(1, 10)} | {"B13", "B16"} <= {held.code for held in HELD}


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
