"""Modules that look like a gated MLP for some x, or whose layers lie elsewhere: each is swapped or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.errors import BackendUnavailableError, NothingSwappedError
from mlpfusion.models.swap import swap

X = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))


class Twice(Plain):
    """Gives twice the MLP where `when` says so of x."""

    def __init__(self, when: Any) -> None:
        super().__init__()
        self.when = when

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return 2 * y if self.when(x) else y


SHAPES = {
    "one token": lambda x: x.shape[-2] == 1,
    "many tokens": lambda x: x.shape[-2] > 1024,
    "many rows": lambda x: x.numel() // x.shape[-1] >= 4096,
    "no batch": lambda x: x.dim() == 2,
    "a batch": lambda x: x.dim() == 3 and x.shape[0] > 1,
}


@pytest.mark.parametrize("when", SHAPES)
def test_a_branch_on_the_shape_of_x_is_refused(when: str) -> None:
    with pytest.raises(NothingSwappedError, match="its forward depends on the shape of x"):
        swap(Twice(SHAPES[when]), "eager")


class Clamped(Plain):
    """Clamps one of its values, in some dtypes."""

    def __init__(self, where: str, largest: float | None, only: torch.dtype | None = None) -> None:
        super().__init__()
        self.where, self.largest, self.only = where, largest, only

    def at(self, where: str, x: Tensor) -> Tensor:
        if self.where != where or self.only not in {None, x.dtype}:
            return x
        largest = torch.finfo(x.dtype).max if self.largest is None else self.largest
        return x.clamp(-largest, largest)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.at("gate", self.a(self.at("x", x))), self.at("up", self.b(x))
        return self.at("y", self.c(self.at("inner", functional.silu(gate) * up)))


@pytest.mark.parametrize("where", ["x", "gate", "up", "inner", "y"])
@pytest.mark.parametrize("largest", [7.0, 65504.0, 1e6, 3e38])
def test_a_clamp_of_any_size_is_refused(where: str, largest: float) -> None:
    with pytest.raises(NothingSwappedError, match="extra maths"):
        swap(Clamped(where, largest), "eager")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("where", "largest"), [("gate", 1.0), ("y", 1.0), ("inner", None)])
def test_a_clamp_in_one_dtype_is_refused_in_that_one(dtype: torch.dtype, where: str, largest: float | None) -> None:
    short = str(dtype).removeprefix("torch.")
    with pytest.raises(NothingSwappedError, match=f"in {short} its forward is another"):
        swap(Clamped(where, largest, dtype).to(dtype), "eager")
    other = torch.bfloat16 if dtype != torch.bfloat16 else torch.float32
    model = Clamped(where, largest, dtype).to(other)
    with swap(model, "eager"):
        model(X.to(other))
        model.to(dtype)  # as its weights may become later
        with pytest.raises(BackendUnavailableError, match=f"in {short} its own forward is another"):
            model(X.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_clamp_in_the_dtype_of_autocast_stops_that_call(dtype: torch.dtype) -> None:
    model = Clamped("gate", 1.0, dtype)
    with swap(model, "eager"):
        model(X)
        with torch.autocast("cpu", dtype), pytest.raises(BackendUnavailableError, match="its own forward is another"):
            model(X)


# ---- what cannot be run, or needs more -------------------------------------------------------------------------------


class TwoD(Plain):
    def forward(self, x: Tensor) -> Tensor:
        _, _ = x.shape
        return super().forward(x)


class FourD(Plain):
    def forward(self, x: Tensor) -> Tensor:
        _, _, _, _ = x.shape
        return super().forward(x)


class NoDouble(Plain):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("no float64")
        return super().forward(x)


class Pair(Plain):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Needs(Plain):
    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return super().forward(x) + residual


class Rounds(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x).float()).to(x.dtype) * self.b(x))
        return y


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x)) * self.b(x))
        return y


class Mixing(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(-2, keepdim=True))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (NoDouble, "cannot be run on one tensor of float64, by which it is judged: TypeError: no float64"),
        (Pair, "it returns a tuple, not one tensor"),
        (Needs, "its forward needs more than one tensor: x, residual"),
        (Rounds, r"a gated MLP \(silu\) and rounds inside"),
        (Wider, r"a gated MLP \(silu\) of 32 features to 64; backends return 32"),
        (Mixing, "its forward mixes tokens"),
    ],
)
def test_what_no_backend_may_replace_is_refused_with_the_reason(kind: type[nn.Module], reason: str) -> None:
    with pytest.raises(NothingSwappedError, match=f"1 refused: 0 .*{reason}"):
        swap(nn.Sequential(kind()), "eager")


@pytest.mark.parametrize(("kind", "shape"), [(TwoD, (3, 32)), (FourD, (1, 2, 3, 32))])
def test_what_takes_x_of_one_number_of_dimensions_is_taken(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    model, x = kind(), torch.randn(shape)
    before = model(x)
    with swap(model, "eager"):
        torch.testing.assert_close(model(x), before)


class PackedAttention(nn.Module):
    """Queries, keys and values in one layer of twice the width, as with half as many keys as queries."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 64), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.qkv(x)[..., :32].softmax(-2))
        return y


def test_attention_is_in_no_list() -> None:
    with pytest.raises(NothingSwappedError, match="has no gated MLP"):
        swap(PackedAttention(), "eager")


# ---- layers one level down -------------------------------------------------------------------------------------------


class GLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        hidden, gate = self.proj(x).chunk(2, dim=-1)
        return hidden * functional.gelu(gate)


class InFirst(nn.Module):
    """As CLVP: gate, up and the activation are one part."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.drop = GLU(), nn.Linear(48, 32), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(self.drop(self.fc1(x)))
        return y


class InList(nn.Module):
    """As diffusers: all is in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.ModuleList([GLU(), nn.Dropout(0.0), nn.Linear(48, 32)])

    def forward(self, x: Tensor, *args: Any, **named: Any) -> Tensor:
        for part in self.net:
            x = part(x)
        return x


class Clippable(nn.Module):
    """As Gemma 4: a plain layer between two clamps whose limits are buffers."""

    def __init__(self, into: int, out: int, largest: float) -> None:
        super().__init__()
        self.linear = nn.Linear(into, out, bias=False)
        self.register_buffer("largest", torch.tensor(largest))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x.clamp(-self.largest, self.largest))
        return y.clamp(-self.largest, self.largest)


class Clipped(nn.Module):
    def __init__(self, largest: float = float("inf")) -> None:
        super().__init__()
        self.g, self.u, self.d = (
            Clippable(32, 48, largest), Clippable(32, 48, largest), Clippable(48, 32, largest)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.d(functional.silu(self.g(x)) * self.u(x))
        return y


class Wrapping(nn.Module):
    """Around an MLP, and nothing of its own."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(32), mlp

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.mlp(self.norm(x))
        return y


@pytest.mark.parametrize("backend", ["eager", "triton", "packed", "fused"])
@pytest.mark.parametrize("kind", [InFirst, InList, Clipped])
def test_layers_inside_parts_are_found_and_given_back(kind: type[nn.Module], backend: str) -> None:
    model = Wrapping(kind())
    before, keys = model(X), list(model.state_dict())
    with swap(model, backend) as handle:
        assert [each.name for each in handle.swapped] == ["mlp"]
        assert all("." in path for role, path in handle.swapped[0].layers.items() if role != "down")
        torch.testing.assert_close(model(X), before)
        assert list(model.state_dict()) == keys
    assert torch.equal(model(X), before)


@pytest.mark.parametrize("backend", ["eager", "fused"])
def test_a_layer_inside_a_part_that_is_replaced_or_hooked_is_not_left_out(backend: str) -> None:
    model = Clipped()
    with swap(model, backend):
        hook = model.g.register_forward_hook(lambda *_: None)
        with pytest.raises(BackendUnavailableError, match="g has hooks, which no backend runs"):
            model(X)
        hook.remove()
        model(X)
        model.g.linear = nn.Linear(32, 48, bias=False)
        with pytest.raises(BackendUnavailableError, match=r"its g\.linear was replaced"):
            model(X)


def test_wrappers_that_do_something_are_refused_by_name() -> None:
    with pytest.raises(NothingSwappedError, match=r"mlp \(Clipped\): .*extra maths"):
        swap(Wrapping(Clipped(0.5)), "eager")


class Experts(nn.Module):
    """Routed experts of three dimensions beside a shared one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Parameter(torch.zeros(4, 96, 32)), nn.Parameter(torch.zeros(4, 32, 48))
        self.shared = Plain()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.shared(x)
        return y


def test_what_is_beside_experts_is_swapped_and_experts_are_counted() -> None:
    handle = swap(nn.Sequential(Experts(), Experts()), "eager")
    assert [each.name for each in handle.swapped] == ["0.shared", "1.shared"]
    assert [each.name for each in handle.refused] == ["0", "1"]
    assert "its 4 experts are 3-D parameters (gate_up, down)" in handle.refused[0].reason
    assert handle.summary == "2 of 2 shared experts swapped; 8 routed experts are one grouped operator, not a gated MLP"


class Block(nn.Module):
    """Routed experts, and beside them a shared one."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.experts, self.shared_expert = Experts(), shared
        self.experts.shared = nn.Identity()


@pytest.mark.parametrize(("second", "number"), [(Plain, 2), (Pair, 1)])
def test_the_summary_tells_shared_experts_from_others(second: type[nn.Module], number: int) -> None:
    model = nn.ModuleDict({"dense": Plain(), "one": Block(Plain()), "two": Block(second())})
    said = f"1 of 1 MLPs swapped; {number} of 2 shared experts swapped; 8 routed experts are one grouped operator"
    assert str(swap(model, "eager")) == f"{said}, not a gated MLP"
