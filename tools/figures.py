"""Draws the figures of docs/figures from the recorded results, with the commands that the pages name.

python tools/figures.py
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from mlpfusion.cli import main

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = ROOT / "docs" / "figures"
_DRAWN: Final = re.compile(r"^(mlpfusion plot .* -o ([\w-]+\.svg)\b.*)$", re.MULTILINE)


def commands() -> dict[str, str]:
    """The command that draws each file, as the page has it."""
    text = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
    return {name: line.split(" #")[0].strip() for line, name in _DRAWN.findall(text)}


def draw(command: str, path: Path) -> int:
    """Run a command in the root of the repository, which writes to `path` instead of the file that it names."""
    words = shlex.split(command)[1:]
    words[words.index("-o") + 1] = str(path)
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return main.main(words)
    finally:
        os.chdir(before)


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        failed = [name for name, command in commands().items() if draw(command, FIGURES / name)]
    sys.exit(f"not drawn: {', '.join(failed)}" if failed else 0)
