"""Finding and loading OpenBLAS."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine import openblas
from engine.openblas import find_candidates, load_first

MAPS = Path("/proc/self/maps")


def test_the_threaded_build_comes_first(tmp_path: Path) -> None:
    """Debian keeps several builds side by side; the loader's own search comes last."""
    for folder in ("lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu/openblas-openmp", "lib/arm/openblas-pthread"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libopenblas.so.0").touch()
    assert find_candidates(tmp_path) == [
        str(tmp_path / "lib/arm/openblas-pthread/libopenblas.so.0"),
        str(tmp_path / "lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0"),
        str(tmp_path / "lib/x86_64-linux-gnu/libopenblas.so.0"),
        "libopenblas.so.0",
    ]


def test_nothing_that_loads_is_none(tmp_path: Path) -> None:
    """A file that is no library is passed over, a missing one too."""
    broken = tmp_path / "libopenblas.so.0"
    broken.write_bytes(b"not a library")
    assert load_first([str(broken), str(tmp_path / "missing.so")]) is None


@pytest.mark.skipif(openblas.LOADED_PATH is None, reason="OpenBLAS is not installed, or this is not Linux")
def test_the_engine_loads_it_before_mlx() -> None:
    """When `python -m engine` reaches its settings, OpenBLAS stands before MLX among the process's libraries."""
    script = (
        "import sys, runpy; sys.argv = ['engine', '--max-rows', '0']\n"
        "try: runpy.run_module('engine', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 78, end.code\n"
        "names = list(sys.modules); print(names.index('engine.openblas') < names.index('mlx.core'))\n"
        f"print('openblas' in open({str(MAPS)!r}).read())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.skipif(openblas.LOADED_PATH is None, reason="OpenBLAS is not installed, or this is not Linux")
@pytest.mark.parametrize("own", [None, "21"])
def test_idle_threads_sleep_soon(own: str | None) -> None:
    """OpenBLAS has read for how long they may look for work, the user's own value first; no child inherits it."""
    script = (
        "import ctypes, subprocess; from engine import openblas\n"
        "print(ctypes.CDLL(openblas.LOADED_PATH).openblas_thread_timeout())\n"
        "print('OPENBLAS_THREAD_TIMEOUT' in subprocess.run(['env'], capture_output=True, text=True).stdout)"
    )
    settings = {"OPENBLAS_THREAD_TIMEOUT": own} if own else {}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)} | settings
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [own or str(openblas.SPIN_LOG2_CYCLES), "False"]
