"""Where files are, what they are called, and that one request can be read in order."""

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.structure.sources import PACKAGES, ROOT, files, imported_modules, python_files, tree

BANNED_NAMES = {"utils", "util", "common", "misc", "core", "base", "helpers"}
ALLOWED_BASES = {Path("engine/cache/base.py"), Path("frontend/dialects/base.py"), Path("frontend/parsers/base.py")}

# One request from HTTP to text, each file importing, or handed to, the next (design.md, "Layout").
READING_ORDER = (
    ("frontend/handlers.py", "frontend.dialects.openai_chat"),
    ("frontend/dialects/openai_chat.py", "frontend.dialects.base"),
    ("frontend/handlers.py", "frontend.engine_client"),
    ("frontend/engine_client.py", "protocol.messages"),
    ("engine/mailbox.py", "protocol.messages"),
    ("engine/loop.py", "engine.mailbox"),
    ("engine/loop.py", "engine.batch"),
    ("engine/loop.py", "engine.decode"),
    ("frontend/handlers.py", "frontend.reply"),
    ("frontend/reply.py", "frontend.choice"),
    ("frontend/choice.py", "frontend.text.pipeline"),
    ("frontend/handlers.py", "frontend.sse"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_names_resolve_to_this_distribution(package: str) -> None:
    """The import names are generic: another distribution's `engine` must not win."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


def test_tests_have_no_init_files() -> None:
    """Tests are imported by file, never as packages that could shadow ours."""
    assert [str(name) for name in files() if name.parts[0] == "tests" and name.name == "__init__.py"] == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    """A drawer for everything is nobody's."""
    named = [name for name in python_files(*PACKAGES, "bench", "tests") if name.stem in BANNED_NAMES]
    assert sorted(set(named) - ALLOWED_BASES) == []


def test_every_module_says_what_it_owns_in_five_lines() -> None:
    """A module docstring exists and is short."""
    lengths = {str(name): docstring_lines(name) for name in python_files(*PACKAGES, "bench")}
    assert {name: count for name, count in lengths.items() if not 1 <= count <= 5} == {}


def docstring_lines(name: Path) -> int:
    """Lines of the module docstring; 0 when there is none."""
    docstring = ast.get_docstring(tree(name))
    return len(docstring.splitlines()) if docstring else 0


@pytest.mark.parametrize(("name", "reaches"), READING_ORDER)
def test_one_request_can_be_read_in_order(name: str, reaches: str) -> None:
    """Each station of the design's reading order exists and leads to the next."""
    modules = imported_modules(Path(name))
    assert any(module == reaches or module.startswith(f"{reaches}.") for module in modules)
