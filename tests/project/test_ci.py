"""What CI runs, with `make` and `apt-get` replaced by scripts that say so."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BEFORE, AFTER = ["lint", "docs"], ["test-isa", "test", "test-rest"]
BROWSER = ["browser-test", 'ARGS=-m "not full"']
INSTALLS = 'printf "#!/bin/sh\\n" > "$BIN/chromium-headless-shell"; chmod +x "$BIN/chromium-headless-shell"'


def run(tmp_path: Path, apt: str, *, has: str | None = None, make: str = "") -> tuple[int, list[str], str]:
    """The exit code of `.ci/run`, the words that `make` was called with, and what was printed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "timeout", "chmod"):
        os.symlink(shutil.which(name) or "", tools / name)
    scripts = {"apt-get": apt, "make": f'printf "%s\\n" "$@" >> "$BIN/made"; {make}'}
    for name, script in {**scripts, **({has: "true"} if has else {})}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    where = {"PATH": str(tools), "BIN": str(tools)}
    done = subprocess.run(
        [tmp_path / ".ci" / "run"], env=where, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, (tools / "made").read_text().splitlines(), done.stdout


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"])
def test_a_browser_that_is_there_is_used_and_nothing_installed(tmp_path: Path, name: str) -> None:
    code, made, said = run(tmp_path, 'printf "installed\\n" >> "$BIN/made"', has=name)
    assert (code, made, said) == (0, [*BEFORE, *BROWSER, *AFTER], "")


@pytest.mark.parametrize(
    "apt",
    [
        INSTALLS,
        f'if [ "$1" = update ]; then : > "$BIN/updated"; else [ -e "$BIN/updated" ] || exit 1; {INSTALLS}; fi',
    ],
    ids=["at once", "after an update"],
)
def test_one_that_can_be_installed_is_used(tmp_path: Path, apt: str) -> None:
    code, made, said = run(tmp_path, apt)
    assert (code, made, said) == (0, [*BEFORE, *BROWSER, *AFTER], "")


def test_without_one_it_says_what_was_not_run_and_goes_on(tmp_path: Path) -> None:
    code, made, said = run(tmp_path, "echo mirror out of reach >&2; exit 100")
    assert (code, made) == (0, [*BEFORE, *AFTER])
    assert said == "NOT RUN: make browser-test: there is no Chromium, and apt-get could install none\n"


def test_a_browser_s_test_that_fails_fails_the_run(tmp_path: Path) -> None:
    code, made, _ = run(tmp_path, "exit 1", has="chromium", make='[ "$1" != browser-test ]')
    assert code != 0
    assert made == [*BEFORE, *BROWSER]
