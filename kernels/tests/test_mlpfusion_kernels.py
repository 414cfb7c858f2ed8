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


def test_an_unknown_activation_is_refused() -> None:
    gate = torch.zeros(2, device=DEVICE)
    with pytest.raises(ValueError, match="unknown activation 'tanh'; known: gelu_tanh, gelu, silu, relu"):
        kernels.act_mul(gate, gate, "tanh")
