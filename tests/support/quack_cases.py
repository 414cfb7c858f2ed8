"""Small cases for the `quack` backend, and devices that it runs on or does not."""

from __future__ import annotations

from typing import Any

import torch

from mlpfusion.device import Device
from mlpfusion.reference import Case, make_case
from mlpfusion.spec import MLPSpec, Workload

CPU = torch.device("cpu")
H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0))
V100 = Device(kind="cuda", name="Tesla V100", runtime="cuda", capability=(7, 0))
MI300 = Device(kind="cuda", name="AMD Instinct MI300X", runtime="rocm", capability=(9, 4))


def spec(**changes: Any) -> MLPSpec:
    return MLPSpec(**{"hidden_size": 32, "intermediate_size": 48, **changes})


def case(mode: str = "training", **changes: Any) -> Case:
    return make_case(Workload(spec=spec(**changes), batch=2, seq=3, mode=mode), CPU, seed=0)
