"""`python -m engine`: OpenBLAS first, then everything that imports MLX."""

import faulthandler
import signal
import sys

import engine.openblas  # noqa: F401  # importing it is its work

# isort: split
if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]  # it is None where descriptor 2 is closed
    # Where each thread stands, without the interpreter's lock: at a crash in a library, and whenever SIGUSR1 asks.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)

from engine.main import main

sys.exit(main(sys.argv[1:]))
