"""Run as a script in a process of its own: what the `hub` backend says and computes under the environments it is given.

Takes as its argument a JSON list of pairs: changes of the environment, and requests {"repo", "version", "bind",
"answer_s"}. Prints for each pair a JSON list of answers {"reason", "origin", "refusal", "error"}. `kernels` and
huggingface_hub read their settings at import, so each pair gets a fork of this process that has not imported them.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl

from mlpfusion.backends import hub as hub_module
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
    vars(geglu)["tanh"] = tanh
    results = zip(step(call, case)(), oracle(case), strict=True)
    answer["error"] = max(error(value, exact).maximum for value, exact in results)


def answer_all(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = []
    for request in requests:
        hub = Hub(request.get("repo"), request.get("version"))
        hub_module.ANSWER_S = request.get("answer_s", 900)
        answer: dict[str, Any] = {"reason": hub.unsupported(SPEC, GPU)}
        if request.get("bind"):
            bound(hub, answer)
        answers.append({**answer, "origin": hub.origin})
    return answers


def main() -> None:
    assert not {"kernels", "huggingface_hub"} & sys.modules.keys()
    for changes, requests in json.loads(sys.argv[1]):
        if not (child := os.fork()):
            os.environ.update(changes)
            print(json.dumps(answer_all(requests)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"failed: {changes} {requests}")


if __name__ == "__main__":
    main()
