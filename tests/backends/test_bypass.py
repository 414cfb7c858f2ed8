"""Global hooks and late classes: no backend bypasses them, whenever they come; PyTorch's own trackers pass."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.bypassed import Doubled, Tripled
from torch import Tensor, nn
from torch.nn.modules import module as hooking
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

from mlpfusion.errors import BackendUnavailableError, NothingSwappedError
from mlpfusion.models.swap import swap
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEC = MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32")
X = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
BYPASSING = ("packed", "fused")  # of those that run on a CPU
KINDS = {
    "forward hook": hooking.register_module_forward_hook,
    "forward pre-hook": hooking.register_module_forward_pre_hook,
    "backward hook": hooking.register_module_full_backward_hook,
    "backward pre-hook": hooking.register_module_full_backward_pre_hook,
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_bypassing = pytest.mark.parametrize("backend", BYPASSING)


@contextlib.contextmanager
def hooked(kind: str) -> Iterator[list[str]]:
    """A global hook of this kind, and the names of the classes that it has seen."""
    seen: list[str] = []

    def note(module: nn.Module, *_: Any) -> None:
        seen.append(type(module).__name__)

    handle = KINDS[kind](note)
    try:
        yield seen
    finally:
        handle.remove()


class Gated(nn.Module):
    """A gated MLP whose activation is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(self.act(self.a(x)) * self.b(x))
        return y


@each_kind
@each_bypassing
@pytest.mark.parametrize("grad", [True, False])
def test_a_call_that_would_bypass_one_is_refused_until_it_is_gone(backend: str, kind: str, grad: bool) -> None:
    mlp = GatedMLP(SPEC, backend=backend)
    with torch.set_grad_enabled(grad):
        before = mlp(X)
        with hooked(kind), pytest.raises(BackendUnavailableError, match=f"'{backend}'.*has a global {kind}, which"):
            mlp(X)
        assert torch.equal(mlp(X), before)


@each_kind
@each_bypassing
def test_binding_is_refused_too_and_later_done(backend: str, kind: str) -> None:
    mlp = GatedMLP(SPEC)
    with hooked(kind):
        with pytest.raises(BackendUnavailableError, match=f"'{backend}'.*gate_proj has a global {kind}, which"):
            mlp.set_backend(backend)
        assert mlp.backend == "eager"
        with pytest.raises(NothingSwappedError, match=f"'{backend}': a has a global {kind}, which this backend"):
            swap(nn.Sequential(without_act()), backend)
    mlp.set_backend(backend)
    with hooked(kind):
        twin = copy.deepcopy(mlp)
        with pytest.raises(BackendUnavailableError, match=f"has a global {kind}"):
            twin(X)
    assert torch.equal(twin(X), mlp(X))


def reclass(layer: nn.Module) -> None:
    layer.__class__ = Tripled


def parametrize_weight(layer: nn.Module) -> None:
    parametrize.register_parametrization(layer, "weight", Doubled())


@each_bypassing
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(("change", "name"), [(reclass, "Tripled"), (parametrize_weight, "ParametrizedLinear")])
@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_another_class_that_comes_after_binding_is_refused(
    backend: str, grad: bool, change: Callable[[nn.Module], None], name: str, part: str
) -> None:
    mlp = GatedMLP(SPEC, backend=backend)
    change(getattr(mlp, part))
    with (
        torch.set_grad_enabled(grad),
        pytest.raises(BackendUnavailableError, match=f"'{backend}'.*projection has become a {name}, which this"),
    ):
        mlp(X)


def without_act() -> nn.Module:
    """A gated MLP whose parts are all layers."""

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.c(nn.functional.silu(self.a(x)) * self.b(x))
            return y

    return Bare()


@each_kind
@pytest.mark.parametrize("backend", ["eager", "triton"])
def test_backends_that_call_the_layers_let_them_take_part(backend: str, kind: str) -> None:
    mlp = GatedMLP(SPEC, backend=backend)
    with hooked(kind) as seen:
        mlp(X.clone().requires_grad_()).sum().backward()
    assert sorted(seen) == ["GatedMLP", "Linear", "Linear", "Linear"]


@each_kind
def test_one_that_would_see_the_activation_is_not_left_out_by_any_backend(kind: str) -> None:
    model = Gated()
    before = model(X)
    with hooked(kind), pytest.raises(NothingSwappedError, match=f"act has a global {kind}, which no backend runs"):
        swap(model, "eager")
    with swap(model, "eager"):
        with hooked(kind), pytest.raises(BackendUnavailableError, match=f"act has a global {kind}, which no backend"):
            model(X)
        assert torch.equal(model(X), before)


@each_bypassing
def test_what_pytorch_itself_registers_only_notes_which_module_runs(backend: str) -> None:
    mlp, model = GatedMLP(SPEC, backend=backend), Gated()
    swap(model, backend)
    for each in (mlp, model):
        before = each(X)
        with FlopCounterMode(display=False):
            assert torch.equal(each(X), before)
            with hooked("forward hook"), pytest.raises(BackendUnavailableError, match="global forward hook"):
                each(X)


def test_pytorch_counts_the_products_of_an_mlp_as_its_own() -> None:
    counts = {}
    for backend in ("eager", "packed"):
        mlp = GatedMLP(SPEC, backend=backend)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            mlp(X)
        counts[backend] = {name: sum(each.values()) for name, each in counter.get_flop_counts().items()}
    assert counts["packed"] == {"Global": 2 * 2 * 3 * 16 * 32, "GatedMLP": 2 * 2 * 3 * 16 * 32}
    assert counts["packed"].items() < counts["eager"].items()


@pytest.mark.parametrize("grad", [True, False])
def test_the_check_compiles_into_the_one_graph(grad: bool) -> None:
    mlp = GatedMLP(SPEC, backend="packed")
    torch.compiler.reset()
    with torch.set_grad_enabled(grad):
        expected = mlp(X)
        compiled = torch.compile(mlp, backend="eager", fullgraph=True)
        assert torch.equal(compiled(X), expected)
        found = torch._dynamo.explain(mlp)(X)
    assert (found.graph_count, found.graph_break_count) == (1, 0)
    torch.compiler.reset()
