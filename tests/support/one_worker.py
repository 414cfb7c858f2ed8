"""One worker, the operands that its targets get, and what they should make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from mlpfusion.stages.validate.judge.examine import Bench
    from mlpfusion.stages.validate.judge.worker_handle import Hired

LIMIT_S = 900.0
GIVEN = {"gate": torch.linspace(-3, 3, 64).view(4, 16), "up": torch.linspace(1, 2, 64).view(4, 16)}
RIGHT = F.gelu(GIVEN["gate"], approximate="tanh") * GIVEN["up"]


@pytest.fixture
def worker(bench: Bench) -> Hired:
    return bench.worker


def is_right(worker: Hired, target: str) -> bool:
    worker.load(target, "gelu_tanh", time_limit_s=LIMIT_S)
    return torch.allclose(worker.ask("forward", GIVEN, time_limit_s=LIMIT_S)[0]["y"], RIGHT)
