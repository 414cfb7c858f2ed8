"""What changes after a swap that a module's own forward would read: the call stops, unless the maths stays the same."""

from __future__ import annotations

import copy
import enum
import functools
import math
import pickle
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.errors import BackendUnavailableError, NothingSwappedError
from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
OFFSET = 0.0


class Config:
    """Shared by the parts of a model."""

    def __init__(self) -> None:
        self.limit, self.unused = float("inf"), list(range(100))
        self.scaling, self.inner = {"factor": 1.0}, None


class Act(nn.Module):
    """An activation with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.beta, self.steps = 1.0, [1.0, 1.0]

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(x) * self.beta * self.steps[0]


class Reading(Plain):
    """Reads one thing of each kind, each of which leaves the maths as it is."""

    power = 1.0

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.act, self.function = config, Act(), functional.hardtanh
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("untouched", torch.ones(1))
        self.plain = torch.ones(1)
        self.unread = 1.0

    def forward(self, x: Tensor) -> Tensor:
        gate = self.a(x).clamp(max=self.config.limit) * self.config.scaling["factor"]
        y: Tensor = self.c(self.act(gate) * self.b(x) * self.scale * self.plain)
        return y * self.power + OFFSET


def loaded(model: Reading) -> None:
    other = Reading(model.config)
    other.load_state_dict(model.state_dict())
    other.scale.fill_(3.0)
    model.load_state_dict(other.state_dict())


CHANGES: dict[str, Callable[[Reading], Any]] = {
    "act.beta": lambda model: setattr(model.act, "beta", 2.0),
    "act.steps": lambda model: model.act.steps.__setitem__(0, 2.0),
    "config.limit": lambda model: setattr(model.config, "limit", 0.1),
    "config.scaling": lambda model: model.config.scaling.update(factor=2.0),
    "config": lambda model: model.__dict__.update(config=changed_config()),
    "scale": loaded,
    "plain": lambda model: model.plain.mul_(2.0),
}
HARMLESS: dict[str, Callable[[Reading], Any]] = {
    "an equal value": lambda model: setattr(model.act, "beta", float("1.0")),
    "an equal config": lambda model: model.__dict__.update(config=Config()),
    "an equal buffer": lambda model: model.load_state_dict(model.state_dict()),
    "what is not read": lambda model: (model.untouched.fill_(7.0), setattr(model.config, "unused", None)),
    "an attribute that is not read": lambda model: setattr(model, "unread", 3.0),
    "a move": lambda model: model.bfloat16().float(),
}


def changed_config() -> Config:
    config = Config()
    config.limit = 0.1
    return config


@pytest.mark.parametrize("what", CHANGES)
def test_what_would_change_the_maths_stops_the_next_call(what: str) -> None:
    model = Reading(Config())
    with swap(nn.Sequential(model), "eager"):
        model(X)
        CHANGES[what](model)
        with pytest.raises(BackendUnavailableError, match=rf"0: its {what} was changed"):
            model(X)
    model(X)


@pytest.mark.parametrize("what", HARMLESS)
def test_what_leaves_the_maths_as_it_is_stops_nothing(what: str) -> None:
    model = Reading(Config())
    with swap(model, "eager"):
        HARMLESS[what](model)
        swapped = model(X)
    torch.testing.assert_close(swapped, model(X))


def test_attributes_of_classes_and_globals_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Reading(Config())
    with swap(model, "eager"):
        monkeypatch.setattr(Reading, "power", 2.0)
        with pytest.raises(BackendUnavailableError, match="its power was changed"):
            model(X)
        monkeypatch.undo()
        model(X)
        monkeypatch.setitem(globals(), "OFFSET", 1.0)
        with pytest.raises(BackendUnavailableError, match="OFFSET was changed"):
            model(X)


@pytest.mark.parametrize("made", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("what", ["act.beta", "config.limit", "scale"])
def test_a_copy_watches_its_own(made: Callable[[nn.Module], Any], what: str) -> None:
    model = Reading(Config())
    before = model(X)
    with swap(model, "eager"):
        twin = made(model)
        CHANGES[what](twin)
        with pytest.raises(BackendUnavailableError, match=f"its {what} was changed"):
            twin(X)
        torch.testing.assert_close(model(X), before)
        torch.testing.assert_close(made(model)(X), before)


def test_compiled_it_runs_its_own_forward_where_a_compiler_could_not_see_a_change() -> None:
    model = Reading(Config())
    with swap(model, "eager"):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        with pytest.warns(
            UserWarning, match=r"the model itself: compiled code .* not the backend 'eager': it reads scale"
        ):
            compiled(X)
        model.scale.fill_(3.0)
        found = compiled(X)
    torch.testing.assert_close(found, model(X))


class Colour(enum.Enum):
    RED, BLUE = "red", "blue"


class Held(Plain):
    """Reads something, whatever it is."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        _ = self.held
        return super().forward(x)

    def twice(self, x: Tensor) -> Tensor:
        return 2 * x


class Partial(nn.Module):
    """As GELUTanh of transformers is."""

    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.act = functools.partial(functional.gelu, approximate=approximate)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(x)
        return y


# What a forward may read, and another of its kind.
KINDS: dict[str, tuple[object, object]] = {
    "int": (1, 2),
    "float": (math.inf, 1.0),
    "bool": (True, False),
    "str": ("a", "b"),
    "none": (None, 1),
    "dtype": (torch.float32, torch.float16),
    "device": (torch.device("cpu"), torch.device("meta")),
    "size": (torch.Size([1]), torch.Size([2])),
    "enum": (Colour.RED, Colour.BLUE),
    "range": (range(2), range(3)),
    "tuple": ((1, 2), (1, 3)),
    "list": ([1.0], [2.0]),
    "dict": ({"a": 1}, {"a": 2}),
    "class": (Config, Reading),
    "function": (functional.silu, functional.relu),
    "builtin": (torch.add, torch.mul),
    "method": (math.floor, math.ceil),
    "operator": (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor),
    "partial": (functools.partial(functional.gelu, approximate="tanh"), functools.partial(functional.gelu)),
    "partials in a list": ([functools.partial(functional.gelu)], [functional.gelu]),
    "partials in a tuple": ((functools.partial(torch.clamp, max=2.0),), (functools.partial(torch.clamp, max=3.0),)),
    "partials in a dict": ({"a": functools.partial(functional.gelu)}, {"b": functools.partial(functional.gelu)}),
    "partial of a partial": (functools.partial(map, functools.partial(abs)), functools.partial(map, abs)),
    "ordered": (OrderedDict(a=1), OrderedDict(a=2)),
    "partial of a value": (functools.partial(torch.clamp, max=2.0), functools.partial(torch.clamp, max=3.0)),
    "module": (Partial("tanh"), Partial("none")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_it_runs_the_backend_until_what_is_read_changes(kind: str) -> None:
    """Else a model that is swapped and compiled is the plain model, and nothing says so."""
    held, other = KINDS[kind]
    model, graphs = Held(held).eval(), []

    def kept(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph.code)
        return graph.forward

    torch.compiler.reset()
    with swap(model, "triton"), torch.no_grad():
        compiled = torch.compile(model, backend=kept, fullgraph=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(X)
        assert "mlpfusion_kernels.act_mul" in graphs.pop()
        model.__dict__["_modules" if isinstance(held, nn.Module) else "held"] = (
            {**model._modules, "held": other} if isinstance(held, nn.Module) else other
        )
        with pytest.warns(UserWarning, match="it reads held, which was changed"):
            compiled(X)
        assert "mlpfusion_kernels.act_mul" not in graphs.pop()


class Global(Plain):
    """Reads a global."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + OFFSET


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_a_global_that_changes_takes_part(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Global().eval()
    torch.compiler.reset()
    with swap(model, "triton"), torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        if when == "after":
            compiled(X)
        monkeypatch.setitem(globals(), "OFFSET", 1.0)
        with pytest.warns(UserWarning, match="OFFSET, which was changed"):
            found = compiled(X)
    torch.testing.assert_close(found, model(X))


@torch.jit.script
def same(x: Tensor) -> Tensor:
    return x


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return 2 * x


class Scripted(Plain):
    """Calls a function of TorchScript, which a compiler does not look at."""

    def __init__(self) -> None:
        super().__init__()
        self.after = same

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.after(super().forward(x))
        return y


def test_compiled_a_scripted_function_that_changes_takes_part() -> None:
    model = Scripted().eval()
    torch.compiler.reset()
    with swap(model, "triton"), torch.no_grad():
        compiled = torch.compile(model, backend="eager")
        with pytest.warns(UserWarning, match="it reads after, whose value compiled code cannot watch"):
            compiled(X)
        model.__dict__["after"] = doubled
        found = compiled(X)
    torch.testing.assert_close(found, model(X))


class Counting(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class Averaging(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.add_(x.mean())
        return super().forward(x)


class Listed(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.scales = [torch.ones(1)]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scales[0]


class InPlace(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(1.0))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Counting, "its forward sets calls"),
        (Averaging, "its forward changes mean in place"),
        (Listed, "its forward reads scales, a list whose changes cannot be seen"),
        (InPlace, "it changes x in place"),
    ],
)
def test_what_cannot_be_watched_or_is_more_than_y_is_refused(kind: type[nn.Module], reason: str) -> None:
    with pytest.raises(NothingSwappedError, match=reason):
        swap(kind(), "eager")
