"""What happens to a swapped module afterwards: it goes on computing what its own forward would, or says why not."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import Tensor, nn

from mlpfusion import GatedMLP, MLPSpec
from mlpfusion.device import is_interpreted
from mlpfusion.errors import BackendUnavailableError, NothingSwappedError, UsageError
from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from collections.abc import Callable

BACKENDS = ("eager", "triton", "packed", "fused")


class Full(Plain):
    """Plain, with the parts that an MLP may have besides its layers."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.act, self.function, self.factor, self.index = nn.SiLU(), torch.mul, 1.0, 0
        self.drop = nn.Dropout(rate)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, hidden_states: Tensor, *, only: bool = False) -> Tensor:
        inner = self.function(self.act(self.a(hidden_states)) * self.factor * self.scale, self.b(hidden_states))
        y: Tensor = self.c(self.drop(inner))
        return y


X = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_called_by_the_names_of_its_own_forward(backend: str) -> None:
    model = Full()
    expected = model(X)
    with swap(model, backend) as handle:
        torch.testing.assert_close(model(hidden_states=X), expected)
        with handle.skipped():
            assert model(hidden_states=X) is X
        assert handle.bypassed == 0
        torch.testing.assert_close(model(X, only=True), expected)
        torch.testing.assert_close(model(hidden_states=X, only=True), expected)
        assert handle.bypassed == 2
        for given, named in (((), {}), ((X, X), {}), ((), {"x": X})):
            with pytest.raises(TypeError, match="argument"):
                model(*given, **named)
    assert handle.bypassed == 0  # of modules that are restored


def added(model: nn.Module, name: str, part: nn.Module) -> None:
    model.add_module(name, part)


def put(model: nn.Module, name: str, part: nn.Module) -> None:
    model._modules[name] = part


@pytest.mark.parametrize("way", [added, put])
@pytest.mark.parametrize(("name", "part"), [("a", nn.Linear(32, 48)), ("act", nn.ReLU())])
def test_a_part_replaced_behind_its_back_is_not_left_out(way: Callable[..., None], name: str, part: nn.Module) -> None:
    model = Full()
    with swap(model, "eager"):
        way(model, name, part)
        with pytest.raises(BackendUnavailableError, match=f"its {name} was (replaced|changed)"):
            model(X)
    assert model._modules[name] is part


@pytest.mark.parametrize(
    ("name", "value"), [("act", nn.ReLU()), ("function", torch.add), ("factor", 2.0), ("scale", torch.tensor(2.0))]
)
def test_what_would_change_its_maths_cannot_be_set(name: str, value: Any) -> None:
    model = Full()
    before = model(X)
    with swap(model, "eager"):
        with pytest.raises(UsageError, match=f"'{name}' of a swapped module cannot be replaced"):
            setattr(model, name, value)
        assert torch.equal(model(X), before)
    setattr(model, name, value)
    assert not torch.equal(model(X), before)


def test_all_of_it_compiles_in_one_graph() -> None:
    model = Full().train()
    before = model(X)
    torch.compiler.reset()
    with swap(model, "eager"):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(X), before)
        assert torch.equal(compiled(hidden_states=X), before)


@pytest.mark.parametrize("made", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_one_that_is_compiled_runs_its_own_weights(made: Callable[[nn.Module], Any]) -> None:
    model = Plain()
    with swap(model, "triton"):
        model.compile(backend="eager")
        expected = model(X)
        twin = made(model)
        with torch.no_grad():
            for weight in model.parameters():
                weight.zero_()
        torch.testing.assert_close(twin(X), expected)


def test_what_does_not_change_its_maths_can_be_set() -> None:
    model = Full()
    before = model(X)
    with swap(model, "eager"):
        model.act, model.index, model.note = nn.SiLU(), 7, "new"
        assert torch.equal(model(X), before)
        assert torch.equal(copy.deepcopy(model)(X), before)


def test_dropout_that_comes_later_is_not_left_out() -> None:
    model = Full().train()
    with swap(model, "eager"):
        model(X)
        model.drop.p = 0.5
        with pytest.raises(BackendUnavailableError, match="in training this module drops out"):
            model(X)
        model.eval()(X)


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_hooks_on_its_other_parts_are_not_left_out(kind: str) -> None:
    model = Full()
    hook = getattr(model.act, kind)(lambda *_: None)
    with pytest.raises(NothingSwappedError, match="act has hooks, which no backend runs"):
        swap(model, "eager")
    hook.remove()
    with swap(model, "eager"):
        model(X)
        getattr(model.act, kind)(lambda *_: None)
        with pytest.raises(BackendUnavailableError, match="act has hooks, which no backend runs"):
            model(X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_shared_with_another_module(backend: str) -> None:
    model = nn.Sequential(Plain(), Plain())
    model[1].b.weight = model[0].b.weight
    before = model(X)
    with swap(model, backend) as handle:
        torch.testing.assert_close(model(X), before)
        if backend == "packed":
            assert "shares a weight with '1'" in handle.refused[0].reason
    assert torch.equal(model(X), before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_swapped_in_inference_mode_it_can_still_be_trained(backend: str) -> None:
    model = Plain()
    with torch.inference_mode():
        handle = swap(model, backend)
        model(X)
    model(X).sum().backward()
    handle.restore()
    model(X).sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_is_right_or_refused(backend: str, dtype: torch.dtype) -> None:
    model = Plain()
    with torch.autocast("cpu", dtype):
        expected = model(X)
        with swap(model, backend):
            if (backend, dtype) == ("fused", torch.bfloat16) and is_interpreted():
                with pytest.raises(
                    BackendUnavailableError, match="interpreter computes bfloat16 matrix products wrong"
                ):
                    model(X)
            else:
                torch.testing.assert_close(model(X), expected, atol=2e-2, rtol=2e-2)


def test_scripted_and_own_modules_are_refused_by_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(Plain())
    with pytest.raises(NothingSwappedError, match="compiled by TorchScript"):
        swap(scripted, "eager")
    own = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"))
    with pytest.raises(NothingSwappedError, match=r"GatedMLP of mlpfusion, whose set_backend"):
        swap(nn.Sequential(own), "eager")


def test_arguments_of_a_wrong_kind_are_one_line() -> None:
    class Mine:
        name = "mine"

        def unsupported(self, spec: object, device: object) -> str | None:
            return None

        def bind(self, mlp: Any) -> Any:
            return mlp

    for backend in (Mine, object()):
        with pytest.raises(UsageError, match="backend must be a name or a Backend, got"):
            swap(Plain(), backend)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="backend must be a name or a Backend, got"):
            GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32), backend=backend)  # type: ignore[arg-type]
    for where in (3, ["a"]):
        with pytest.raises(UsageError, match="where must be a pattern or a function"):
            swap(Plain(), "eager", where=where)  # type: ignore[arg-type]
