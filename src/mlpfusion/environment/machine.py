"""Records the environment of a measurement: versions, driver, clocks and flags, from an allow-list."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib import metadata
from typing import TYPE_CHECKING, Final

from mlpfusion.environment import card, checkout
from mlpfusion.records.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlpfusion.device import Device

# Variables that change what is measured. No other variable is ever read into a result.
FLAGS: Final = (
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS",
    "TRITON_INTERPRET",
)

_PLAIN: Final = re.compile(r"\d{0,6}|true|false|on|off|yes|no", re.IGNORECASE | re.ASCII)

NVIDIA_SMI_S: Final = 60.0  # it takes up to 3 s where the driver has to be woken, and longer on a busy machine


def collect(device: Device, distributions: Mapping[str, str | None]) -> Environment:
    """The environment of this process, as a result file stores it, with the distributions of the backends that ran."""
    import torch

    driver, sm_clock, memory_clock = _nvidia_smi(device)
    return Environment(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        torch=str(torch.__version__),
        triton=_version("triton"),
        liger_kernel=_version("liger-kernel"),
        kernels=_version("kernels"),
        cuda=torch.version.cuda or torch.version.hip,
        driver=driver,
        sm_clock_mhz=sm_clock,
        memory_clock_mhz=memory_clock,
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        flags={name: _plain(os.environ[name]) for name in FLAGS if name in os.environ},
        distributions=dict(sorted(distributions.items())),
        card=card.settings(device),
        checkout=checkout.checkout(),
    )


def now() -> str:
    """The time in UTC, to the second, as a result file stores it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _plain(value: str) -> str:
    """The value of a flag, if it is a number or a word for one: a result has room for no other text of the user's."""
    return value if _PLAIN.fullmatch(value) else "another value"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _nvidia_smi(device: Device) -> tuple[str | None, int | None, int | None]:
    """Driver version and the SM and memory clocks in MHz at this moment, or Nones where nvidia-smi has none."""
    if device.runtime != "cuda":
        return None, None, None
    import torch

    uuid = str(torch.cuda.get_device_properties(device.index).uuid)
    selectors = [uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"]
    if "CUDA_VISIBLE_DEVICES" not in os.environ:  # of which nvidia-smi knows nothing: its index would be another card's
        selectors.append(str(device.index))
    for selector in selectors:
        found = _ask(selector)
        if found is not None:
            return found
    return None, None, None


def _ask(selector: str) -> tuple[str, int, int] | None:
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv,noheader,nounits"]
    try:
        asked = [*query, "-i", selector]
        printed = subprocess.run(asked, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
        driver, sm_clock, memory_clock = (part.strip() for part in printed.stdout.splitlines()[0].split(","))
        return driver, int(sm_clock), int(memory_clock)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
