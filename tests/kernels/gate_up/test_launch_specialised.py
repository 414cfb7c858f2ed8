"""How the warp-specialised gate/up kernels are launched: boxes, constants and programs, and what listeners are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gate_up import launch
from mlpfusion_kernels.gate_up.configs import Card, Config
from mlpfusion_kernels.gate_up.hopper import backward
from mlpfusion_kernels.launching import cached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion_kernels.launching.cached import Launched

M, D, H = 300, 512, 208
FORWARD = Config("hopper", 128, 128, 64, 8, 4, 4, 1)
TALL = Config("hopper", 192, 64, 64, 4, 4, 5, 1)
BACKWARD = Config("hopper", 128, 256, 64, 8, 4, 3, 1)
BOX = backward.BOX.value


class Call(NamedTuple):
    key: Any
    programs: int
    described: Any
    tensors: Any
    rest: Any
    options: Any


class Recorder:
    """A launcher that runs nothing."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.calls: list[Call] = []

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(Call(*arguments))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> tuple[Recorder, Recorder]:
    both = Recorder("forward"), Recorder("backward")
    monkeypatch.setattr(launch, "_hopper", lambda: both)
    monkeypatch.setattr(launch, "card", lambda _: Card((9, 0), 132, 227 * 1024))
    return both


@pytest.fixture
def told() -> Iterator[list[Launched]]:
    found: list[Launched] = []
    cached.LISTENERS.append(found.append)
    yield found
    cached.LISTENERS.remove(found.append)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16)


@pytest.mark.parametrize("config", [FORWARD, TALL], ids=["two warpgroups", "three"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_forward_boxes_lie_over_the_operands_where_they_are(
    kernels: tuple[Recorder, Recorder], told: list[Launched], keep: bool, bias: bool, config: Config
) -> None:
    x, wide = random(M, 2 * D)[:, :D], random(2, H, D + 16)
    biases = (random(H), random(H)) if bias else ()
    weights = Weights(wide[1, :, :D], wide[0, :, :D], random(D, H), *biases)
    product, gate, up = launch.gate_up_forward(x, weights, "silu", keep, config)
    (call,) = kernels[0].calls
    assert call.programs == -(-M // config.block_m) * -(-H // config.block_n)
    operands = (x, weights.gate, weights.up, product, *((gate, up) if keep else (product, product)))
    for box, operand in zip(call.described.boxes(), operands, strict=True):
        assert box.tensor.data_ptr() == operand.data_ptr()
        assert (box.shape, box.strides) == (tuple(operand.shape), operand.stride())
    # Each warpgroup takes 64 of a tile's rows; 16 of its columns are stored at a time.
    columns = (config.block_n, 64)
    assert [box.block for box in call.described.boxes()] == [(64, 64), columns, columns, *[(64, 16)] * 3]
    assert call.rest[:6] == (M, H, D, call.programs, 0, 1)  # all tiles are whole ones
    assert call.rest[-5:] == ("silu", bias, keep, config.block_m // 64, False)
    assert call.key[2] == call.rest[6:]  # the key of the launch decides every constant
    # The computing and the copying warpgroups have the multiprocessor's registers between them.
    threads = 128 * (config.block_m // 64 + 1)
    assert call.options == {"num_warps": 4, "maxnreg": {384: 168, 512: 128}[threads]}
    (launched,) = told
    assert launched.kernel == "forward"
    assert {name: tensor.data_ptr() for name, tensor in launched.writes.items()} == {
        name: tensor.data_ptr()
        for name, tensor in (("product", product), ("gate", gate), ("up", up))
        if tensor is not None
    }
    assert set(launched.reads) == {"x", "gate_weight", "up_weight", *(("gate_bias", "up_bias") if bias else ())}


@pytest.mark.parametrize(
    ("keep", "activation", "parts", "together"),
    [
        (False, "gelu_tanh", 8, 8),
        (False, "gelu", 8, 4),
        (True, "silu", 8, 4),
        (False, "gelu", 4, 4),
        (True, "relu", 4, 4),
    ],
)
def test_long_epilogues_are_loops(
    kernels: tuple[Recorder, Recorder], keep: bool, activation: str, parts: int, together: int
) -> None:
    config = FORWARD._replace(parts=parts)
    weights = Weights(random(H, D), random(H, D), random(D, H))
    launch.gate_up_forward(random(M, D), weights, activation, keep, config)
    assert kernels[0].calls[0].rest[11:13] == (parts, together)


def test_backward_boxes_lie_over_the_operands_and_the_rest_comes_by_pointers(
    kernels: tuple[Recorder, Recorder], told: list[Launched]
) -> None:
    dy, down, gate, up = random(M, D), random(D, H), random(M, H), random(M, H)
    dgate_up, product = launch.gate_up_backward(dy, down, gate, up, "gelu", BACKWARD)
    assert (dgate_up.shape, product.shape) == ((M, 2 * H), (M, H))
    (call,) = kernels[1].calls
    for box, operand in zip(call.described.boxes(), (dy, down), strict=True):
        assert box.tensor.data_ptr() == operand.data_ptr()
        assert (box.shape, box.strides) == (tuple(operand.shape), operand.stride())
    assert [box.block for box in call.described.boxes()] == [(64, 64), (64, 256)]
    assert [each.data_ptr() for each in call.tensors[:4]] == [each.data_ptr() for each in (gate, up, dgate_up, product)]
    assert call.rest == (M, H // 16, D, call.programs, 0, 1, 128, 256, 64, 3, 8, 2, "gelu", False)
    assert call.key[2] == call.rest[6:]
    assert call.options == {"num_warps": 4, "maxnreg": 168}
    assert set(told[0].reads) == {"dy", "down_weight", "gate", "up"}
    assert set(told[0].writes) == {"dgate_up", "product"}


@pytest.mark.parametrize(("depth", "pieces"), [(528, 2), (768, 2), (1024, 2), (1040, 1), (4096, 1)])
def test_a_step_of_a_long_sum_has_one_piece_of_the_backwards_epilogue(
    kernels: tuple[Recorder, Recorder], depth: int, pieces: int
) -> None:
    launch.gate_up_backward(random(M, depth), random(depth, H), random(M, H), random(M, H), "silu", BACKWARD)
    assert kernels[1].calls[0].rest[11] == pieces
    # Each of these steps waits for the one after it, and a tile's last step must not.
    assert -(-depth // BACKWARD.block_k) > BACKWARD.block_m // 2 // BOX // pieces


def test_nobody_is_told_when_nobody_listens(
    kernels: tuple[Recorder, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "announce", lambda _: pytest.fail("announced"))
    launch.gate_up_forward(random(M, D), Weights(random(H, D), random(H, D), random(D, H)), "relu", False, FORWARD)
    assert len(kernels[0].calls) == 1
