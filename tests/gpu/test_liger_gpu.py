"""Liger on a GPU, from PyPI and as a Hub kernel in both styles: values, gradients and what its backward refuses."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import liger_trees

from mlpfusion.backends.eager import Eager
from mlpfusion.backends.hub import REPO, Hub
from mlpfusion.backends.liger import Liger
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.reference import Case, error, judge, make_case, oracle, step
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from mlpfusion.backend import Backend

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="needs liger-kernel"),
]

CUDA = torch.device("cuda")
SOURCES = ("liger", "hub v1", "hub v2")


@pytest.fixture(params=SOURCES)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Backend:
    if request.param == "liger":
        return Liger()
    liger_trees.build(tmp_path, style=request.param.removeprefix("hub "))
    monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={tmp_path}")
    return Hub()


def case(device: torch.device = CUDA, *, batch: int = 3, seq: int = 37, mode: str = "training", **changes: Any) -> Case:
    fields = {"hidden_size": 192, "intermediate_size": 520, "dtype": "bfloat16", **changes}
    return make_case(Workload(spec=MLPSpec(**fields), batch=batch, seq=seq, mode=mode), device, seed=0)


def ratio(given: Case, values: tuple[Tensor, ...]) -> float:
    """The worst error against fp64 over eager's own."""
    return judge(values, step(Eager().bind(given.mlp), given)(), oracle(given)).ratio


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ["gelu_tanh", "silu"])
def test_output_and_gradients_are_as_close_to_fp64_as_eagers(backend: Backend, activation: str, dtype: str) -> None:
    given = case(activation=activation, dtype=dtype)
    given.mlp.set_backend(backend)
    assert ratio(given, step(given.mlp, given)()) <= 2


@pytest.mark.parametrize(("batch", "seq", "size"), [(1, 1, 3072), (2, 5, 1), (1, 2, 65536)])
def test_edge_sizes(backend: Backend, batch: int, seq: int, size: int) -> None:
    given = case(batch=batch, seq=seq, intermediate_size=size, mode="inference")
    assert ratio(given, step(backend.bind(given.mlp), given)()) <= 2


def test_a_strided_input_is_read_as_it_is(backend: Backend) -> None:
    given = case(mode="inference")
    wide = torch.cat([given.x, given.x + 1], dim=-1)
    call = backend.bind(given.mlp)
    with torch.no_grad():
        assert torch.equal(call(wide[..., :192]), call(given.x))


def test_wider_rows_are_refused(backend: Backend) -> None:
    given = case(hidden_size=8, intermediate_size=65537, mode="inference")
    with pytest.raises(BackendUnavailableError, match="65537 is over 65536"):
        given.mlp.set_backend(backend)


def test_double_backward_is_refused_by_name(backend: Backend) -> None:
    given = case()
    call = backend.bind(given.mlp)
    loss = call(given.x).float().sum() + (given.x.float() ** 3).sum()
    with pytest.raises(BackendUnavailableError, match=rf"'{backend.name}'.*create_graph=True"):
        torch.autograd.grad(loss, given.x, create_graph=True)


def test_a_second_backward_is_refused_by_name(backend: Backend) -> None:
    given = case()
    y = backend.bind(given.mlp)(given.x)
    torch.autograd.grad(y, given.x, given.dy, retain_graph=True)
    with pytest.raises(BackendUnavailableError, match=rf"'{backend.name}'.*second backward"):
        torch.autograd.grad(y, given.x, given.dy)


def test_an_output_saved_upstream_survives_the_in_place_backward(backend: Backend) -> None:
    given = case(dtype="float32")
    leaf = torch.randn_like(given.x).requires_grad_()
    (grad,) = torch.autograd.grad(backend.bind(given.mlp)(leaf.exp()), leaf, given.dy)
    upstream = given._replace(x=leaf.detach().exp().requires_grad_())
    exact = oracle(upstream)[1] * leaf.detach().double().exp()
    (eager,) = torch.autograd.grad(Eager().bind(given.mlp)(leaf.exp()), leaf, given.dy)
    assert error(grad, exact).maximum <= 2 * error(eager, exact).maximum


def test_compiled_it_is_right_or_says_why_not(backend: Backend) -> None:
    """Compiled Liger is another program: its values are judged like any other's, and its backward runs once at most."""
    given = case()
    torch.compiler.reset()
    compiled = torch.compile(backend.bind(given.mlp))
    assert ratio(given, step(compiled, given)()) <= 2
    # The compiler lets the backward overwrite buffers of the forward and then refuses both itself; where it does not,
    # a second backward has to be right.
    refused = r"double backward|donated buffers"
    with pytest.raises(RuntimeError, match=refused):
        torch.autograd.grad(torch.autograd.grad(compiled(given.x).sum(), given.x, create_graph=True)[0].sum(), given.x)
    y = compiled(given.x)
    try:
        first = torch.autograd.grad(y, given.x, given.dy, retain_graph=True)[0].clone()
    except RuntimeError as error_text:
        if not re.search(refused, str(error_text)):
            raise
    else:
        assert torch.equal(first, torch.autograd.grad(y, given.x, given.dy)[0])


def test_on_a_gpu_that_is_not_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    given = case(torch.device("cuda:1"))
    assert ratio(given, step(Liger().bind(given.mlp), given)()) <= 2
    with pytest.raises(BackendUnavailableError, match="launches on the current GPU, cuda:0"):
        Hub().bind(given.mlp)
