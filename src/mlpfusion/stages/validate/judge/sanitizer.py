"""Runs a target once under NVIDIA's compute-sanitizer, and reads which line it finds fault with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.channel import CALLED
from mlpfusion.stages.validate.judge.exam import Found, failed, passed, reported, undecided
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlpfusion.device import DeviceKind
    from mlpfusion.spec import Activation, Dtype

PROGRAM: Final = "compute-sanitizer"
TOOLS: Final = ("memcheck", "racecheck", "initcheck")
MOST: Final = 20  # faults that it prints
_RULE: Final = re.compile(r"^=========\s?(.*)$")
# "at kernel+0x60 in file.py:34", in releases before 12 "at 0x60 in file.py:34:kernel".
_PLACES: Final = (
    re.compile(r"\bat (?P<kernel>[^\s(+]+)(?:\(.*\))?\+0x[0-9a-f]+(?: in (?P<file>.+?):(?P<line>\d+))?$"),
    re.compile(r"\bat 0x[0-9a-f]+ in (?P<file>.+?):(?P<line>\d+):(?P<kernel>[^\s(]+)"),
)
# What begins a fault; other lines of the same form say when and by which thread, or are the host's.
_FAULTS: Final = (
    re.compile(r"^(Invalid __\w+__ (?:read|write|atomic)\b.*|Invalid .*(?:read|write) of size \d+.*)"),
    re.compile(r"^(?:Error: |Warning: )?(?:\(.*?\) )?(Race reported between .*|Potential \w+ hazard detected.*)"),
    re.compile(r"^(Uninitialized __\w+__ memory read of size \d+.*)"),
    re.compile(r"^(Program hit .*?) (?:due to|on) .*"),
    re.compile(
        r"^(Misaligned .*|Stack overflow.*|Illegal instruction.*|Device assert.*|Host API memory access error.*)"
    ),
)


class Fault(NamedTuple):
    """One kind of fault at one place: what it is, the kernel, the file's name and the line, and how often."""

    what: str
    kernel: str | None
    file: str | None
    line: int | None
    times: int = 1

    @property
    def where(self) -> str:
        """The place in words."""
        line = f" in {self.file}, line {self.line}" if self.file else ""
        return f"{self.kernel or 'a kernel'}{line}"


def check(device: DeviceKind, environment: Mapping[str, str] = os.environ) -> Path:
    """The sanitizer's program.

    Raises:
        UsageError: there is no GPU, or it is not installed.
    """
    if device != "cuda":
        raise UsageError(
            "--sanitize needs an NVIDIA GPU: compute-sanitizer watches what runs there; this run is on the CPU"
        )
    found = shutil.which(PROGRAM, path=environment.get("PATH"))
    homes = [environment[name] for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)]
    for home in (*homes, "/usr/local/cuda"):
        found = found or shutil.which(PROGRAM, path=str(Path(home) / "bin"))
    if found is None:
        raise UsageError(
            f"--sanitize needs {PROGRAM}, a part of the CUDA toolkit, which is neither on PATH nor in CUDA_HOME or "
            "/usr/local/cuda"
        )
    return Path(found)


def command(program: Path, tool: str, target: str, *, activation: Activation, dtype: Dtype, seed: int) -> list[str]:
    """The command that runs a target once under one of TOOLS."""
    watched = [sys.executable, "-m", "mlpfusion.stages.validate.worker.once", target, activation, dtype, str(seed)]
    return [
        *(str(program), "--tool", tool, "--print-limit", str(MOST), "--show-backtrace", "no"),
        *(*watched, "cuda", os.pathsep.join(sys.path)),
    ]


def run(command: list[str], *, time_limit_s: float) -> str:
    """What such a command prints; every tensor gets memory of its own, since PyTorch's cache hides where one ends.

    Raises:
        TimeoutError: it took longer.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no end within {time_limit_s:g} s") from None
    return done.stdout.decode(errors="replace")


def faults(text: str) -> tuple[Fault, ...]:
    """The faults in what it prints, each place once, in their order."""
    found: dict[tuple[str, str | None, str | None, int | None], int] = {}
    what: str | None = None
    for raw in text.splitlines():
        rule = _RULE.match(raw.rstrip())
        if rule is None:
            continue
        line = rule[1].strip()
        begun = next((match[1] for each in _FAULTS if (match := each.match(line))), None)
        if begun is not None:
            if what is not None:
                _count(found, what, None)
            what = begun
        if what is not None and (place := _place(line)) is not None:
            _count(found, what, place)
            what = None
    if what is not None:
        _count(found, what, None)
    return tuple(Fault(*key, count) for key, count in found.items())


def _place(line: str) -> re.Match[str] | None:
    return next((match for each in reversed(_PLACES) if (match := each.search(line)) is not None), None)


def _count(
    found: dict[tuple[str, str | None, str | None, int | None], int], what: str, place: re.Match[str] | None
) -> None:
    short = re.sub(r" at .*", "", what)
    if place is None:
        key: tuple[str, str | None, str | None, int | None] = (short, None, None, None)
    else:
        file = place["file"]
        key = (short, place["kernel"], None if file is None else Path(file).name, int(place["line"]) if file else None)
    found[key] = found.get(key, 0) + 1


def judged(tool: str, text: str) -> Found:
    """What the text of one tool says of a target.

    A fault in a kernel that has a line of Python, as Triton's have, is the target's. One elsewhere is told: libraries
    read memory that they have not written, and use none of it.
    """
    seen = faults(text)
    own = [each for each in seen if each.file is not None and each.file.endswith(".py")]
    if own or (seen and tool == "memcheck"):
        first = (own or list(seen))[0]
        more = f"; {len(seen) - 1} place{'s' * (len(seen) > 2)} more" if len(seen) > 1 else ""
        return failed(f"{tool}: {first.what} in {first.where}{more}")
    called = next((line.removeprefix(CALLED) for line in text.splitlines() if line.startswith(CALLED)), None)
    if called is None:
        said = [line for line in text.splitlines() if line.strip() and not line.startswith("=========")]
        why = private.text(said[-1].strip()) if said else "nothing was printed"
        return undecided(f"{tool}: the target was not called to the end: {why}")
    if seen:
        return reported(f"{tool}: {seen[0].what} in {seen[0].where}, a kernel without a line of Python")
    return passed(f"{tool}: nothing to object to in {called}")
