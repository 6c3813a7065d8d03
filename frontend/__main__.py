"""`python -m frontend`."""

import sys

from frontend.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
