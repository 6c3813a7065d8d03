"""House limits of size, by file and function."""

from tests.structure.sources import PACKAGES, ROOT, files, functions, python_files

CODE = (*PACKAGES, "bench")
LONGEST_FILE_LINES = 400
LONGEST_FUNCTION_LINES = 60
MOST_PARAMETERS = 5


def test_no_file_is_over_400_lines() -> None:
    """Split by concept before a file grows beyond one screenful of ideas."""
    others = (name for name in files() if name.suffix in (".sh", ".js", ".mjs", ".css", ".html"))
    checked = [*python_files(*CODE, "tests"), *others]
    assert len(checked) > 50
    counts = {str(name): len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in checked}
    assert {name: count for name, count in counts.items() if count > LONGEST_FILE_LINES} == {}


def test_no_function_is_over_60_lines() -> None:
    """Counted from `def` to its last line, docstring included."""
    lengths = {
        f"{name}:{function.name}": (function.end_lineno or function.lineno) - function.lineno + 1
        for name in python_files(*CODE)
        for function in functions(name)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION_LINES} == {}


def test_no_function_takes_more_than_5_parameters() -> None:
    """More is a struct; `self` and `cls` do not count."""
    counts: dict[str, int] = {}
    for name in python_files(*CODE):
        for function in functions(name):
            arguments = function.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            counts[f"{name}:{function.name}"] = len([item for item in named if item.arg not in ("self", "cls")])
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}
