"""The published functions against PyTorch in float64; runs on a GPU or in Triton's interpreter."""

import os

import pytest
import torch

# Read by triton when a kernel is defined, so it must be set before the package is imported.
if not torch.cuda.is_available() and not torch.xpu.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import mlpfusion_kernels as kernels

DEVICE = "cuda" if torch.cuda.is_available() else "xpu" if torch.xpu.is_available() else "cpu"


@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
@pytest.mark.parametrize(
    ("dtype", "relative"), [(torch.float32, 1e-6), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)]
)
@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 5, 7), (16, 96)])
def test_values_and_gradients(activation: str, dtype: torch.dtype, relative: float, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up, dy = (torch.randn(shape, generator=generator).to(DEVICE, dtype) for _ in range(3))
    gate.requires_grad_()
    up.requires_grad_()
    exact_gate, exact_up = (t.detach().double().requires_grad_() for t in (gate, up))
    out = kernels.act_mul(gate, up, activation)
    exact = kernels.act_mul_reference(exact_gate, exact_up, activation)
    grads = torch.autograd.grad(out, (gate, up), dy)
    exact_grads = torch.autograd.grad(exact, (exact_gate, exact_up), dy.double())
    for got, want in zip((out, *grads), (exact, *exact_grads), strict=True):
        assert got.dtype is dtype
        torch.testing.assert_close(got.double(), want, rtol=2 * relative, atol=4 * relative)


def test_halves_of_a_packed_tensor_are_read_in_place() -> None:
    packed = torch.randn(12, 2 * 40, device=DEVICE)
    gate, up = packed.chunk(2, dim=-1)
    out = kernels.act_mul(gate, up, "silu")
    assert torch.equal(out, kernels.act_mul(gate.contiguous(), up.contiguous(), "silu"))


def operands(m: int, d: int, h: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x [m, d] and the weights and biases of a gated MLP, as leaves."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((m, d), (h, d), (h, d), (d, h), (h,), (h,), (d,))
    scales = (1.0, d**-0.5, d**-0.5, h**-0.5, 0.1, 0.1, 0.1)
    made = (torch.randn(shape, generator=generator) * scale for shape, scale in zip(shapes, scales, strict=True))
    return [each.to(DEVICE, dtype).requires_grad_() for each in made]


def exact_mlp(leaves: list[torch.Tensor], activation: str) -> torch.Tensor:
    x, gate, up, down, gate_bias, up_bias, down_bias = leaves
    linear = torch.nn.functional.linear
    product = kernels.act_mul_reference(linear(x, gate, gate_bias), linear(x, up, up_bias), activation)
    return linear(product, down, down_bias)


@pytest.mark.skipif(DEVICE == "xpu", reason="gated_mlp runs on CUDA and ROCm")
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
@pytest.mark.parametrize(
    ("dtype", "relative"), [(torch.float32, 1e-6), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)]
)
@pytest.mark.parametrize("tokens", [1, 77])
def test_a_whole_mlp(activation: str, dtype: torch.dtype, relative: float, tokens: int, recompute: bool) -> None:
    if DEVICE == "cpu" and dtype is torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies bfloat16 wrongly")
    leaves = operands(tokens, 32, 48, dtype)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    y = kernels.gated_mlp(leaves[0], kernels.Weights(*leaves[1:]), activation, recompute=recompute)
    want = exact_mlp(exact, activation)
    dy = torch.linspace(-1, 1, y.numel(), device=DEVICE).view_as(y).to(dtype)
    grads = torch.autograd.grad(y, leaves, dy)
    exact_grads = torch.autograd.grad(want, exact, dy.double())
    for got, reference in zip((y, *grads), (want, *exact_grads), strict=True):
        assert got.dtype is dtype
        scale = float(reference.detach().square().mean().sqrt())
        torch.testing.assert_close(got.double(), reference, rtol=8 * relative, atol=8 * relative * scale)


def test_weights_that_cannot_be_read_are_refused() -> None:
    x, gate, up, down, *_ = operands(3, 16, 16, torch.float32)
    assert kernels.unreadable(kernels.Weights(gate, up, down)) is None
    transposed = kernels.Weights(gate.T, up, down)
    assert "gate_weight must have rows of adjacent elements" in kernels.unreadable(transposed)
    with pytest.raises(ValueError, match="gate_weight must have rows of adjacent elements"):
        kernels.gated_mlp(x, transposed, "silu")


def test_an_unknown_activation_is_refused() -> None:
    gate = torch.zeros(2, device=DEVICE)
    with pytest.raises(ValueError, match=f"unknown activation 'tanh'; known: {', '.join(kernels.ACTIVATIONS)}"):
        kernels.act_mul(gate, gate, "tanh")
