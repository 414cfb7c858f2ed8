"""The command `mlpfusion`, and `python -m mlpfusion`: Ctrl-C has its one line from the first import on."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line on what was typed and return the exit code."""
    try:
        from mlpfusion.cli import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("mlpfusion: interrupted; nothing was saved\n")
        return 130
    finally:
        from mlpfusion import interrupts

        interrupts.end_quietly()  # a second Ctrl-C during the interpreter's own end


if __name__ == "__main__":
    sys.exit(main())
