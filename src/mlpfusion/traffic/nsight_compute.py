"""Measures the HBM traffic of kernels by hardware counters, under Nsight Compute."""

from __future__ import annotations

import csv
import glob
import re
import shutil
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mlpfusion.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Device

# `none` leaves the caches as the kernel before left them; `all` empties them before each kernel.
Caches = Literal["none", "all"]

READ: Final = "dram__bytes_read.sum"
WRITE: Final = "dram__bytes_write.sum"
# A kernel of PyTorch's that no backend launches; it precedes the kernels of each backend.
MARKER: Final = "spin_kernel"
_ELSEWHERE: Final = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
_UNITS: Final = {
    "byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12, "B": 1, "KB": 10**3, "MB": 10**6,
    "GB": 10**9, "TB": 10**12,
}  # fmt: skip
NOT_PERMITTED: Final = (
    "the driver does not let this user read hardware counters (ERR_NVGPUCTRPERM): run as root, or load the nvidia "
    "module with NVreg_RestrictProfilingToAdminUsers=0"
)


class KernelBytes(NamedTuple):
    """One kernel as Nsight Compute saw it: its name, and the bytes that it moved from and to device memory."""

    name: str
    read_bytes: int
    write_bytes: int

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.read_bytes + self.write_bytes


def find() -> str | None:
    """Where `ncu` is: on the PATH, or where its installers put it; the newest of several."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return on_path
    found = [path for pattern in _ELSEWHERE for path in sorted(glob.glob(pattern), reverse=True)]
    return next(iter(found), None)


def unavailable(device: Device, ncu: str | None) -> str | None:
    """Why no counters can be read here and what to do about it, or None."""
    if device.kind == "cpu":
        return "hardware counters need a GPU; this run is on the CPU"
    if device.runtime != "cuda":
        return f"hardware counters need Nsight Compute, which does not know {device.runtime}"
    if ncu is None:
        return "Nsight Compute is not installed: no `ncu` on the PATH; install nsight-compute, or put its folder there"
    return None


def command(ncu: str, log: str, caches: Caches) -> list[str]:
    """What stands before the command of a process whose kernels are to be counted, between start and stop of profiling.

    Clocks stay as they are, and the two counters need one pass, so that no kernel runs twice.
    """
    options = ["--clock-control", "none", "--cache-control", caches, "--profile-from-start", "off"]
    options += ["--target-processes", "application-only", "--metrics", f"{READ},{WRITE}"]
    return [ncu, *options, "--csv", "--print-units", "base", "--log-file", log]


def parse(text: str) -> list[KernelBytes]:
    """The kernels in Nsight Compute's CSV, in the order in which they ran.

    Raises:
        MeasurementError: counters were refused, or there is no table; the message says what there is.
    """
    if "ERR_NVGPUCTRPERM" in text:
        raise MeasurementError(NOT_PERMITTED)
    lines = text.splitlines()
    start = next(
        (index for index, line in enumerate(lines) if '"Metric Name"' in line and '"Kernel Name"' in line), None
    )
    if start is None:
        said = [line.strip() for line in lines if line.startswith("==") and ("ERROR" in line or "WARNING" in line)]
        raise MeasurementError("Nsight Compute wrote no table" + (f": {said[-1]}" if said else ""))
    found: dict[str, dict[str, int]] = {}
    names: dict[str, str] = {}
    # Kernel names hold commas and quotes; lines of the log may stand between those of the table.
    table = [line for line in lines[start:] if not line.startswith("==") and line.strip()]
    for row in csv.DictReader(table):
        number, metric = row.get("ID"), row.get("Metric Name")
        if number is None or metric not in (READ, WRITE):
            continue
        names[number] = row.get("Kernel Name") or ""
        found.setdefault(number, {})[metric] = _bytes(row.get("Metric Value") or "", row.get("Metric Unit") or "")
    lost = [names[number] for number, metrics in found.items() if len(metrics) != 2]
    if lost:
        raise MeasurementError(f"Nsight Compute gave only one of two counters for {lost[0]!r}")
    return [KernelBytes(names[number], metrics[READ], metrics[WRITE]) for number, metrics in found.items()]


def by_backend(kernels: Sequence[KernelBytes], backends: Sequence[str]) -> dict[str, tuple[KernelBytes, ...]]:
    """The kernels of each backend, of which each is preceded by one marker.

    Raises:
        MeasurementError: there are more or fewer markers than backends.
    """
    groups: list[list[KernelBytes]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    if len(groups) != len(backends):
        raise MeasurementError(f"Nsight Compute saw {len(groups)} of {len(backends)} backends")
    return {name: tuple(group) for name, group in zip(backends, groups, strict=True)}


def same_kernel(one: str, other: str) -> bool:
    """Whether two spellings of a kernel's name mean one kernel: demanglers differ in namespaces and arguments."""
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters."""
    plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::|\w+::", "", name.removeprefix("void ").strip())
    return re.split(r"[<(]", plain, maxsplit=1)[0].strip()


def _bytes(value: str, unit: str) -> int:
    if unit not in _UNITS:
        raise MeasurementError(f"Nsight Compute counts in {unit!r}; known: {', '.join(_UNITS)}")
    try:
        return round(float(value.replace(",", "")) * _UNITS[unit])
    except ValueError:
        raise MeasurementError(f"Nsight Compute gave {value!r} where a number of bytes belongs") from None
