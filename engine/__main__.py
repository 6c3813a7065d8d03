"""`python -m engine`: OpenBLAS first, then everything that imports MLX."""

import engine.openblas  # noqa: F401  # importing it is its work

# isort: split
import sys

from engine.main import main

sys.exit(main(sys.argv[1:]))
