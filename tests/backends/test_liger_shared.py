"""What `liger` and `hub` share: which MLPs Liger has, and a backward that runs once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from mlpfusion.backends.liger_shared import LAYERS, NEEDS_GPU, WIDEST_ROW, beyond_liger, borrow, no_gpu
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import ACTIVATIONS, MLPSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CPU = Device(kind="cpu", name="a CPU")
INTERPRETED = Device(kind="cpu", name="a CPU", interpreted=True)
H100 = Device(kind="cuda", name="NVIDIA H100", runtime="cuda", capability=(9, 0))
B200 = Device(kind="cuda", name="NVIDIA B200", runtime="cuda", capability=(10, 0))
T4 = Device(kind="cuda", name="Tesla T4", runtime="cuda", capability=(7, 5))
WIDE = WIDEST_ROW + 16


def reason(device: Device = H100, *, tiles_wide_rows: bool = False, **changes: object) -> str | None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "dtype": "float16"} | changes
    return beyond_liger(MLPSpec(**sizes), device, tiles_wide_rows=tiles_wide_rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_that_liger_lacks_are_refused_with_those_that_it_has(activation: str) -> None:
    said = reason(activation=activation)
    assert (said is None) == (activation in LAYERS)
    assert said is None or (activation in said and all(name in said for name in LAYERS))


def test_each_limit_is_named() -> None:
    assert "no biases" in (reason(bias=True) or "")
    assert f"{WIDE} is over {WIDEST_ROW}" in (reason(intermediate_size=WIDE) or "")
    assert "Tesla T4" in (reason(T4, dtype="bfloat16") or "")
    assert reason(T4) is None


def test_wide_rows_are_tiled_by_one_copy_for_one_activation_on_one_card() -> None:
    asked = {"intermediate_size": WIDE, "activation": "silu"}
    assert reason(B200, tiles_wide_rows=True, **asked) is None
    for card, tiles, changes in ((H100, True, {}), (B200, False, {}), (B200, True, {"activation": "gelu_tanh"})):
        assert reason(card, tiles_wide_rows=tiles, **(asked | changes)) is not None


def test_a_device_without_the_instructions_is_told_apart() -> None:
    assert no_gpu(H100) is None
    assert no_gpu(CPU) == NEEDS_GPU
    assert "libdevice.tanh" in (no_gpu(Device(kind="cuda", name="x", interpreted=True)) or "")


def lent(forward: Callable[[GatedMLP, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A forward in the place of Liger's, borrowed by a module for the interpreter, where no GPU is asked for."""
    layers = SimpleNamespace(LigerGEGLUMLP=type("LigerGEGLUMLP", (), {"forward": forward}))
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"))
    return borrow(layers, mlp, "liger", tiles_wide_rows=False)


def squares(mlp: GatedMLP, x: Tensor) -> Tensor:
    return mlp.down_proj(mlp.gate_proj(x) ** 2)


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlpfusion.backends.liger_shared.describe", lambda _: INTERPRETED)


@pytest.mark.usefixtures("_interpreted")
def test_a_backward_runs_once_and_at_first_order() -> None:
    run = lent(squares)
    x = torch.randn(4, 16, requires_grad=True)
    y = run(x)
    y.sum().backward(retain_graph=True)
    with pytest.raises(BackendUnavailableError, match="a second backward through the same call"):
        y.sum().backward()
    with pytest.raises(BackendUnavailableError, match="create_graph=True is not supported"):
        torch.autograd.grad(run(x).sum(), x, create_graph=True)
    run(x).sum().backward()  # another call has a backward of its own


@pytest.mark.usefixtures("_interpreted")
def test_a_package_without_the_class_is_named() -> None:
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"))
    with pytest.raises(BackendUnavailableError, match=r"no layers\.LigerGEGLUMLP"):
        borrow(SimpleNamespace(), mlp, "liger", tiles_wide_rows=False)


def test_on_a_cpu_nothing_is_borrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlpfusion.backends.liger_shared.describe", lambda _: CPU)
    with pytest.raises(BackendUnavailableError, match="need a GPU"):
        lent(squares)
