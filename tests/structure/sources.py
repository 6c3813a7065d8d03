"""The repository's files and their syntax trees, for the structure tests."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "frontend", "protocol", "deploy")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository that git knows or would take, relative to ROOT."""
    # The folder may belong to another user than the one who runs the tests, as in a container.
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [Path(name) for name in listed.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if _is_source(path.relative_to(ROOT))]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def _is_source(name: Path) -> bool:
    """For an exported tree without git: not in a hidden folder, a cache or a build."""
    is_hidden = name.parts[0].startswith(".") and name.parts[0] != ".ci"
    return not is_hidden and not {"__pycache__", "dist", "build"} & set(name.parts)


def python_files(*folders: str) -> list[Path]:
    """The Python files under these top-level folders, relative to ROOT."""
    return [name for name in files() if name.suffix == ".py" and name.parts[0] in folders]


@cache
def tree(name: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def functions(name: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of one file."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(name: Path) -> Iterator[str]:
    """The dotted name of everything that one file calls, e.g. `mx.eval`."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def imported_modules(name: Path) -> set[str]:
    """Every module that one file imports, in full; of `from a import b` both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found
