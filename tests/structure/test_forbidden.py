"""Things that are written nowhere, or only in named places."""

import ast
import logging
import re
from pathlib import Path

from tests.structure.sources import PACKAGES, ROOT, calls, files, imported_modules, python_files, tree

# One row's failure, a process's last word, the HTTP middleware.
BROAD_EXCEPT = ["engine/containment.py", "engine/main.py", "frontend/main.py", "frontend/middleware.py"]
# The engine's two turning points, and the places that run once before it serves.
EVALUATES = {"engine/decode.py", "engine/prefill.py", "engine/model/load.py", "engine/model/support.py"}
ORACLE_ONLY = {"mlx_lm.generate", "mlx_lm.server", "mlx_lm.sample_utils"}
BINARY = {".npz", ".safetensors", ".png", ".gz", ".bin", ".msgpack"}


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything."""
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(item) in ("Exception", "BaseException") for item in caught)


def constants(node: ast.expr) -> set[object]:
    """The keys that are written out in a dict."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    return {key.value for key in keys if isinstance(key, ast.Constant)}


def test_broad_excepts_are_in_their_named_places_only() -> None:
    """Everywhere else an error is handled by its type or let go."""
    found = [
        str(name)
        for name in python_files(*PACKAGES, "bench")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    ]
    assert sorted(found) == BROAD_EXCEPT


def test_the_environment_is_read_nowhere() -> None:
    """Settings are flags and files: what a process does can be seen on its command line."""
    pattern = re.compile(r"\bos\.(environ|environb|getenv|putenv)\b")
    found = [str(name) for name in python_files(*PACKAGES, "bench") if pattern.search((ROOT / name).read_text())]
    assert found == []


def test_only_decode_and_prefill_wait_for_the_device() -> None:
    """Every other evaluation would be a hidden synchronisation in a step."""
    evaluations = {"mx.eval", "mx.async_eval", "mlx.core.eval", "mlx.core.async_eval"}
    found = {str(name) for name in python_files(*PACKAGES) if evaluations & set(calls(name))}
    assert found - EVALUATES == set()


def test_the_engine_loop_is_our_own() -> None:
    """mlx-lm's generator, server and samplers are the tests' oracle, not parts of the product."""
    found = {str(name) for name in python_files(*PACKAGES) if ORACLE_ONLY & imported_modules(name)}
    assert found == set()


def test_print_is_for_the_users_terminal() -> None:
    """Processes log; only engine-ctl, bench and deploy talk to a person."""
    speakers = {name for name in python_files("engine", "frontend", "protocol") if "print" in set(calls(name))}
    assert {str(name) for name in speakers if name.parts[:2] != ("engine", "ctl")} == set()


def test_logged_fields_leave_the_records_own_alone() -> None:
    """logging raises at a field such as `created` or `name`: the line, and with it the process, would be lost."""
    own = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    found = [
        (str(name), ast.unparse(keyword.value))
        for name in python_files(*PACKAGES)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "extra" and own & constants(keyword.value)
    ]
    assert found == []


def test_todo_has_an_issue_number() -> None:
    """A wish without an issue is forgotten."""
    word = "TO" + "DO"
    bare = re.compile(rf"\b{word}\b(?!.{{0,20}}#\d)")
    found = [str(name) for name in python_files(*PACKAGES, "bench", "tests") if bare.search((ROOT / name).read_text())]
    assert found == []


def test_no_file_names_a_machine_or_a_package_host() -> None:
    """Paths of one machine and hosts of one registry do not travel; the patterns are spelt so as not to match."""
    hosts = [r"pypi\." + "org", "files\\." + "pythonhosted", "registry\\." + "npmjs", "deb\\." + "debian"]
    homes = ["/ro" + r"ot\b", "/ho" + r"me/\w", "/Us" + r"ers/\w", "/wo" + r"rk/\w"]
    pattern = re.compile("|".join(hosts + homes))
    found: list[str] = []
    for name in files():
        if name.suffix not in BINARY:
            for number, line in enumerate((ROOT / name).read_text("utf-8", "replace").splitlines(), start=1):
                if pattern.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert found == []


def test_patterns_of_hosts_and_homes_would_match() -> None:
    """The test above can fail."""
    assert re.search("/ro" + r"ot\b", "cd /ro" + "ot/x")
    assert Path(__file__).relative_to(ROOT) in files()
