"""The pass in a world of one process: DDP and FSDP2 as they are, DTensors by their name."""

from __future__ import annotations

import pytest
import torch
from support.passed import Gated, an_input, assert_same, backend, operators, outcome, passed
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle

pytestmark = [pytest.mark.full, pytest.mark.skipif(not distributed.is_gloo_available(), reason="no gloo here")]


def silu(g, u):
    return functional.silu(g) * u


@pytest.fixture(scope="module", autouse=True)
def _world(tmp_path_factory):
    store = distributed.FileStore(str(tmp_path_factory.mktemp("world") / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def _gradients(module, call, x):
    x = x.detach().clone().requires_grad_()
    y = call(x)
    y.square().sum().backward()
    found = {"y": y.detach(), "x": x.grad}
    for name, each in module.named_parameters():
        grad = each.grad.full_tensor() if isinstance(each.grad, DTensor) else each.grad
        found[name.removeprefix("module.")] = grad
    return found


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard])
def test_wrapped_modules_are_matched_and_right(wrap):
    x = an_input()
    plain = Gated(silu)
    right = _gradients(plain, plain, x)
    wrapped = wrap(Gated(silu))
    torch._dynamo.reset()
    LEDGER.clear()
    call = torch.compile(wrapped, backend=backend(Pass(settle("eager", 0)), [], "aot_eager"))
    assert_same(_gradients(wrapped, call, x), right)
    assert len(LEDGER.report().placed) == 1


def test_weights_that_are_dtensors_are_named():
    mesh = init_device_mesh("cpu", (1,))
    mlp = Gated(silu).requires_grad_(False)
    for layer in (mlp.one, mlp.two, mlp.three):
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Replicate()]), requires_grad=False)
    x = distribute_tensor(an_input(grad=False), mesh, [Replicate()])
    right = outcome(mlp, mlp, x)
    ran = passed(mlp, x)
    assert not operators(ran), str(ran.report)
    (miss,) = ran.report.near_misses
    assert "is a DTensor, a tensor subclass (quantised or sharded?)" in miss.reason
    assert_same({"y": ran.values["y"].full_tensor()}, {"y": right["y"].full_tensor()})
