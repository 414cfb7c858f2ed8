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
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the interpreter's own end, quietly


if __name__ == "__main__":
    sys.exit(main())
