"""Loads Debian's OpenBLAS on Linux, as a side effect of being imported, before anything imports MLX.

PyPI's CPU build of MLX carries the reference BLAS; symbols already loaded globally win over it. No
environment variable, so that no child inherits anything. Nothing happens on other systems.
"""

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PACKAGE: Final = "libopenblas0-pthread"
_LIBRARY: Final = "libopenblas.so.0"


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
    for candidate in candidates:
        try:
            ctypes.CDLL(candidate, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return candidate
    return None


LOADED_PATH: Final = load_first(find_candidates(Path("/usr"))) if sys.platform == "linux" else None
