"""`python -m mlpfusion`: the command line for an interpreter whose script is not on the path."""

from __future__ import annotations

import sys

from mlpfusion.cli import main

if __name__ == "__main__":
    sys.exit(main())
