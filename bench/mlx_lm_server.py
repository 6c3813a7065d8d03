"""Runs mlx_lm's own server with OpenBLAS loaded first, as our engine does, so that a pair differs in the server alone.

`python -m bench.mlx_lm_server --model FOLDER --port PORT …`: the arguments are mlx_lm.server's.
"""

import warnings

from engine import openblas

# isort: split
from mlx_lm import server


def main() -> None:
    """Serves until interrupted."""
    warnings.filterwarnings("ignore", message="mlx_lm.server is not recommended")
    print(f"OpenBLAS: {openblas.LOADED_PATH}", flush=True)
    server.main()


if __name__ == "__main__":
    main()
