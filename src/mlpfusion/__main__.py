"""The command `mlpfusion`, and `python -m mlpfusion`: Ctrl-C and a package that is missing have their one line."""

from __future__ import annotations

import re
import sys

_INTERRUPTED = 130


def command() -> int:
    """What the command is: `main`, in a process of its own, which ends at once when it was interrupted."""
    code = main()
    if code == _INTERRUPTED:
        from mlpfusion.workers import interrupts

        interrupts.leave(code)
    return code


def main() -> int:
    """Run the command line on what was typed and return the exit code."""
    try:
        from mlpfusion.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("mlpfusion: interrupted; nothing was saved\n")
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _required():
            raise
        sys.stderr.write(f"mlpfusion: this needs {name}, which is not installed: pip install {name}\n")
        return 2
    finally:
        from mlpfusion.workers import interrupts

        interrupts.end_quietly()  # a second Ctrl-C during the interpreter's own end


def _required() -> set[str]:
    """The packages that every installation has, by the names that both pip and `import` know."""
    from importlib import metadata

    return {re.split(r"[^\w-]", each)[0] for each in metadata.requires("mlpfusion-read") or ()}


if __name__ == "__main__":
    sys.exit(command())
