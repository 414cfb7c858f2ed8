"""Run as a script in a fresh process: what the `hub` backend says and computes under the environment it is given.

Takes a JSON list of requests {"repo", "version", "bind"} as its argument and prints one JSON answer for each:
{"reason", "origin", "seconds", "refusal", "error"}. `kernels` and huggingface_hub read their settings at import.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import triton
import triton.language as tl

from mlpfusion.backends.hub import Hub
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.reference import error, make_case, oracle, step
from mlpfusion.spec import MLPSpec, Workload

GPU = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0))
SPEC = MLPSpec(hidden_size=16, intermediate_size=40, dtype="float32")


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


def bound(hub: Hub, answer: dict[str, Any]) -> None:
    """Judge the bound MLP's output and gradients against fp64 in Triton's interpreter, which lacks libdevice.tanh."""
    case = make_case(Workload(spec=SPEC, batch=2, seq=3, mode="training"), torch.device("cpu"), seed=0)
    try:
        call = hub.bind(case.mlp)
    except BackendUnavailableError as refused:
        answer["refusal"] = refused.reason
        return
    (geglu,) = [module for name, module in sys.modules.items() if name.startswith("_liger") and name.endswith("geglu")]
    geglu.tanh = tanh
    results = zip(step(call, case)(), oracle(case), strict=True)
    answer["error"] = max(error(value, exact).maximum for value, exact in results)


def main() -> None:
    answers = []
    for request in json.loads(sys.argv[1]):
        hub = Hub(request.get("repo"), request.get("version"))
        started = time.monotonic()
        answer: dict[str, Any] = {"reason": hub.unsupported(SPEC, GPU), "seconds": time.monotonic() - started}
        if request.get("bind"):
            bound(hub, answer)
        answers.append({**answer, "origin": hub.origin})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
