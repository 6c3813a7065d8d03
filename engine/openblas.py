"""Loads Debian's OpenBLAS on Linux, as a side effect of being imported, before anything imports MLX.

PyPI's CPU build of MLX carries the reference BLAS; symbols already loaded globally win over it. No
environment variable stays, so that no child inherits anything. Nothing happens on other systems.
"""

import ctypes
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PACKAGE: Final = "libopenblas0-pthread"
_LIBRARY: Final = "libopenblas.so.0"
# For how long a thread that is out of work looks for more before it sleeps: 2 to this power of the processor's cycles,
# 0.1 ms. OpenBLAS's own 26 are 25 ms, longer than a step: a processor that masks, frontends and the host would use.
SPIN_LOG2_CYCLES: Final = 18
_SPIN_VARIABLE: Final = b"OPENBLAS_THREAD_TIMEOUT"


def find_candidates(library_root: Path) -> list[str]:
    """Paths worth trying under a folder like /usr, the threaded build first; last the loader's own search."""
    patterns = (
        f"lib/*/openblas-pthread/{_LIBRARY}",
        f"lib/*/openblas-openmp/{_LIBRARY}",
        f"lib/*/{_LIBRARY}",
        f"lib64/{_LIBRARY}",
        f"lib/{_LIBRARY}",
    )
    return [str(path) for pattern in patterns for path in sorted(library_root.glob(pattern))] + [_LIBRARY]


def load_first(candidates: Iterable[str]) -> str | None:
    """Loads the first library that can be loaded and makes its symbols global; None when there is none."""
    with _short_spin():
        for candidate in candidates:
            try:
                ctypes.CDLL(candidate, ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            return candidate
    return None


@contextmanager
def _short_spin() -> Iterator[None]:
    """What OpenBLAS reads once, when it is loaded, and can be told in no other way. A value of the user's own stays."""
    process = ctypes.CDLL(None)
    process.setenv(_SPIN_VARIABLE, str(SPIN_LOG2_CYCLES).encode(), 0)
    try:
        yield
    finally:
        process.unsetenv(_SPIN_VARIABLE)


LOADED_PATH: Final = load_first(find_candidates(Path("/usr"))) if sys.platform == "linux" else None
