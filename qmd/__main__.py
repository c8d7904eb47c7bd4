"""`python -m qmd`."""

import sys

from qmd.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
