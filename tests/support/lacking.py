"""Runs command lines where packages are not installed: each in a fork of a process that has only told its version."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCRIPT = r"""
import contextlib, gc, io, json, os, sys
names, commands = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(names))
from mlpfusion.__main__ import main
import mlpfusion.cli.main
with contextlib.redirect_stdout(io.StringIO()):
    mlpfusion.cli.main.main(["--version"])  # which imports what every command does
gc.freeze()
for arguments in commands:
    if os.fork() == 0:
        sys.argv = ["mlpfusion", *arguments]
        sys.exit(main())
    code = os.waitstatus_to_exitcode(os.wait()[1])
    os.write(1, b"\0%d\0" % code)
    os.write(2, b"\0")
"""


def run(
    python: str | Path, names: Sequence[str], commands: Sequence[Sequence[str]], *options: str, folder: Path
) -> list[tuple[int, str, str]]:
    """Of each command its exit code and what it printed on both streams, by a Python that cannot import these names.

    They run in `folder`.
    """
    command = [str(python), *options, "-c", SCRIPT, json.dumps(names), json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    printed, errors = done.stdout.split("\0"), done.stderr.split("\0")
    return list(zip(map(int, printed[1::2]), printed[::2], errors[: len(commands)], strict=False))
