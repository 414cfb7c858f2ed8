"""Runs the tests on the versions of Python, torch and triton that `pyproject.toml` allows, and records the outcomes.

python bench/version_range.py               all of `RANGE`, each in an environment of its own below build/range; hours
python bench/version_range.py --only 3.13   one Python
python bench/version_range.py --only 3.13 --files tests/cli/test_main.py    once more, after a repair, what had failed

pip fetches some 5 GB for each version of torch that has no CPU build. `--venvs` names a folder of environments that are
there already, named as here, and `--log` and `--commit` record a run from what pytest printed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[1]
RESULT: Final = ROOT / "bench" / "results" / "version-range.json"


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the range: a release of Python, the torch and triton installed for it, and what those need."""

    python: str
    torch: str
    triton: str
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its environment."""
        return f"python{self.python}-torch{self.torch}"


# The oldest torch, and the newest one for the oldest and for the newest Python.
RANGE: Final = (
    # The interpreter of Triton 3.6 makes an int of a one-element array, which NumPy 2.4 refuses.
    Versions(python="3.11", torch="2.11.0", triton="3.6.0", needs=("numpy<2.4",)),
    Versions(python="3.10", torch="2.14.1", triton="3.8.0"),
    Versions(python="3.13", torch="2.15.0", triton="3.9.0"),
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the suite, or of some of its files: what was found, and by which commit; `versions` as imported."""

    versions: dict[str, str]
    commit: str
    finished: str
    files: tuple[str, ...]
    passed: int
    failed: int
    skipped: int
    failures: tuple[str, ...]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, by the name of the environment, in the order in which they were made."""

    schema: int = 1
    kind: str = "version-range"
    runs: dict[str, tuple[Run, ...]] = msgspec.field(default_factory=dict)

    def open(self, name: str) -> tuple[str, ...]:
        """The tests that failed in the last run of the whole suite and in no later run of their file passed."""
        left: tuple[str, ...] = ()
        for run in self.runs[name]:
            kept = [test for test in left if run.files and test.split("::")[0] not in run.files]
            left = (*kept, *run.failures)
        return left


def outcome(printed: str) -> tuple[int, int, int, tuple[str, ...]]:
    """Passed, failed (errors too) and skipped of pytest's closing line, and the names of what failed.

    Raises:
        ValueError: pytest did not come to its end.
    """
    closing = [line for line in printed.splitlines() if re.search(r"\d+ (passed|failed|error).* in [\d.]+s", line)]
    if not closing:
        raise ValueError("pytest did not come to its end")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", closing[-1])}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    names = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?: - .*)?$", printed, re.MULTILINE)
    return counts.get("passed", 0), failed, counts.get("skipped", 0), tuple(dict.fromkeys(names))


def read() -> Outcomes:
    """What was kept so far."""
    return msgspec.json.decode(RESULT.read_bytes(), type=Outcomes) if RESULT.exists() else Outcomes()


def told(outcomes: Outcomes) -> str:
    """The outcomes as docs/index.md says them: a table in Markdown."""
    if not outcomes.runs:
        return "No run over the range is recorded yet; CI runs Python 3.11 with torch 2.13 and triton 3.7."
    lines = ["| Python | torch | triton | commit | passed | failed | skipped |", "|---|---|---|---|---|---|---|"]
    for name, runs in outcomes.runs.items():
        whole = [run for run in runs if not run.files][-1]
        seen, left = whole.versions, outcomes.open(name)
        failed = str(whole.failed)
        if whole.failed and not left:
            failed += f", of which none fails at {runs[-1].commit[:7]}"
        counts = f"{whole.passed:,} | {failed} | {whole.skipped:,}"
        lines.append(f"| {seen['python']} | {seen['torch']} | {seen['triton']} | {whole.commit[:7]} | {counts} |")
    return "\n".join(lines)


def environment(versions: Versions, folder: Path) -> Path:
    """The interpreter of the environment of these versions, made if it is not there."""
    python = folder / versions.name / "bin" / "python"
    if not python.exists():
        subprocess.run([f"python{versions.python}", "-m", "venv", str(python.parents[1])], check=True)
        pins = (f"torch=={versions.torch}", f"triton=={versions.triton}", *versions.needs)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", *pins, "-e", "packages/read", "-e", ".[dev]"], check=True, cwd=ROOT
        )
    return python


def seen(python: Path) -> dict[str, str]:
    """The versions that an interpreter imports."""
    code = "import platform, torch, triton; print(platform.python_version(), torch.__version__, triton.__version__)"
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(("python", "torch", "triton"), said, strict=True))


def suite(python: Path, files: list[str]) -> str:
    """What pytest prints in the end; as it goes, it is seen here."""
    command = [str(python), "-m", "pytest", "-n", "auto", "--dist", "loadfile", "--ignore=tests/gpu", *files]
    printed = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            printed.append(line)
    return "".join(printed)


def main() -> None:
    """Run what is asked, and keep each outcome as soon as it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", metavar="PYTHON", choices=[each.python for each in RANGE])
    parser.add_argument("--files", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--venvs", type=Path, default=ROOT / "build" / "range", metavar="DIR")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--commit", metavar="SHA")
    options = parser.parse_args()
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    for versions in RANGE:
        if options.only in (None, versions.python):
            python = environment(versions, options.venvs)
            printed = options.log.read_text(encoding="utf-8") if options.log else suite(python, options.files)
            passed, failed, skipped, failures = outcome(printed)
            run = Run(
                versions=seen(python),
                commit=options.commit or git.stdout.strip(),
                finished=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                files=tuple(options.files),
                passed=passed,
                failed=failed,
                skipped=skipped,
                failures=failures,
            )
            before = read().runs
            kept = Outcomes(runs={**before, versions.name: (*before.get(versions.name, ()), run)})
            RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    print(told(read()))


if __name__ == "__main__":
    main()
