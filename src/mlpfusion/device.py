"""Facts of a device as reported by the driver, and the peaks of known cards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.units import Count

if TYPE_CHECKING:
    import torch

DeviceKind = Literal["cuda", "cpu"]
DEVICE_KINDS: Final[tuple[DeviceKind, ...]] = ("cuda", "cpu")


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """Datasheet peaks of a card: dense tensor-core FLOP/s at 16 bits, and memory bandwidth in bytes/s."""

    flops_16bit: float
    bandwidth: float
    source: str


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device: a GPU (`kind` "cuda", also for ROCm, whose `runtime` is "rocm") or the CPU.

    `interpreted` says that Triton kernels run in Triton's interpreter, so that they compute but cannot be timed.
    """

    kind: DeviceKind
    name: str
    index: int = 0
    runtime: Literal["cuda", "rocm", "cpu"] = "cpu"
    capability: tuple[int, int] | None = None
    multiprocessors: Count | None = None
    memory_bytes: Count | None = None
    free_bytes: Count | None = None
    l2_bytes: Count | None = None
    interpreted: bool = False

    @property
    def peaks(self) -> Peaks | None:
        """Datasheet peaks if this card is known, else None: never a guess.

        The whole name decides: what follows a known one says that it is another card ("NVIDIA H200 NVL") or a part of
        one ("NVIDIA A100-SXM4-80GB MIG 3g.40gb").
        """
        return None if self.kind == "cpu" else KNOWN_CARDS.get(self.name)


# Dense 16-bit tensor-core rate and memory bandwidth from NVIDIA's datasheets of each product.
KNOWN_CARDS: Final[dict[str, Peaks]] = {
    "NVIDIA A100-SXM4-80GB": Peaks(flops_16bit=312e12, bandwidth=2.039e12, source="NVIDIA A100 datasheet"),
    "NVIDIA A100-SXM4-40GB": Peaks(flops_16bit=312e12, bandwidth=1.555e12, source="NVIDIA A100 datasheet"),
    "NVIDIA A100 80GB PCIe": Peaks(flops_16bit=312e12, bandwidth=1.935e12, source="NVIDIA A100 datasheet"),
    "NVIDIA H100 80GB HBM3": Peaks(flops_16bit=989e12, bandwidth=3.35e12, source="NVIDIA H100 datasheet (SXM)"),
    "NVIDIA H100 PCIe": Peaks(flops_16bit=756e12, bandwidth=2.0e12, source="NVIDIA H100 datasheet (PCIe)"),
    "NVIDIA H200": Peaks(flops_16bit=989e12, bandwidth=4.8e12, source="NVIDIA H200 datasheet"),
    "NVIDIA L40S": Peaks(flops_16bit=362e12, bandwidth=0.864e12, source="NVIDIA L40S datasheet"),
    "NVIDIA B200": Peaks(flops_16bit=2250e12, bandwidth=7.7e12, source="NVIDIA HGX B200 datasheet, one of eight"),
    "NVIDIA GB200": Peaks(flops_16bit=2500e12, bandwidth=8.0e12, source="NVIDIA GB200 NVL72 datasheet, one of 72"),
}


def is_interpreted() -> bool:
    """Whether Triton's interpreter is requested; Triton reads the variable when a kernel is decorated."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def detect(kind: str | None = None) -> Device:
    """The device to measure: the requested one, or the current GPU if there is one, else the CPU.

    Raises:
        UsageError: `kind` is not a device kind, or is "cuda" where torch sees no GPU.
    """
    if kind is not None and kind not in DEVICE_KINDS:
        raise UsageError(f"unknown device {kind!r}; valid: {', '.join(DEVICE_KINDS)}")
    import torch

    available = torch.cuda.is_available()
    if kind == "cuda" and not available:
        raise UsageError("device 'cuda' is not here: torch sees no GPU; valid here: cpu")
    return describe(torch.device("cpu" if kind == "cpu" or not available else "cuda"))


def describe(device: torch.device) -> Device:
    """The facts of one torch device: the current one where a GPU has no index; any other kind is taken for the CPU."""
    import torch

    if device.type != "cuda":
        return _cpu()
    index = torch.cuda.current_device() if device.index is None else device.index
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return Device(
        kind="cuda",
        name=facts.name,
        index=index,
        runtime="rocm" if torch.version.hip else "cuda",
        capability=(facts.major, facts.minor),
        multiprocessors=facts.multi_processor_count,
        memory_bytes=total,
        free_bytes=free,
        l2_bytes=getattr(facts, "L2_cache_size", None),
        interpreted=is_interpreted(),
    )


def _cpu() -> Device:
    page = os.sysconf("SC_PAGE_SIZE")
    return Device(
        kind="cpu",
        name=_cpu_name(),
        multiprocessors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_bytes=page * os.sysconf("SC_PHYS_PAGES"),
        free_bytes=_available_bytes() or page * os.sysconf("SC_AVPHYS_PAGES"),
        interpreted=is_interpreted(),
    )


def _available_bytes() -> int | None:
    """Memory that can be had without swapping, the page cache included, where the kernel reports it."""
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or an old one
    return None


def _cpu_name() -> str:
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the platform module has a name as well
    return platform.processor() or platform.machine()
