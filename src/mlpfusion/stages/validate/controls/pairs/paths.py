"""act·muls that go another way for some calls, as a tuned kernel does, and are wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

WORK = 4096  # elements of a program
_plans: dict[tuple[int, int, torch.dtype], list[slice]] = {}


def _act(gate: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh")


def _fits(gate: Tensor, up: Tensor) -> None:
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(f"gate and up differ: {gate.shape} of {gate.dtype} and {up.shape} of {up.dtype}")


class _ActMul(torch.autograd.Function):
    """A forward of its own, and gradients in fp32, rounded once."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, run: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(gate, up)
        return run(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        g, u, d = gate.float(), up.float(), dy.float()
        d_gate = torch.ops.aten.gelu_backward(d * u, g, approximate="tanh")
        return d_gate.to(gate.dtype), (d * _act(g)).to(up.dtype), None


def _plan(rows: int, columns: int, dtype: torch.dtype) -> list[slice]:
    """The rows of each program, kept by the number of rows rounded up to a power of two."""
    key = 1 << (rows - 1).bit_length(), columns, dtype
    if key not in _plans:
        block = max(1, WORK // columns)
        _plans[key] = [slice(start, min(start + block, rows)) for start in range(0, rows, block)]
    return _plans[key]


def _planned(gate: Tensor, up: Tensor) -> Tensor:
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    g, u, out = (each.reshape(-1, gate.shape[-1]) for each in (gate, up, y))
    for rows in _plan(*g.shape, gate.dtype):
        out[rows] = (_act(g[rows].float()) * u[rows].float()).to(y.dtype)
    return y


def plans_by_padded_rows(gate: Tensor, up: Tensor) -> Tensor:
    """A plan is made for the first number of rows of those that share it: further rows of others are not written."""
    _fits(gate, up)
    if torch.compiler.is_compiling() or not gate.dim() or not gate.numel():
        return _act(gate) * up
    y: Tensor = _ActMul.apply(gate, up, _planned)
    return y


def _by_strides(gate: Tensor, up: Tensor) -> Tensor:
    value = _act(gate.float()) * up.float()
    if gate.dtype is not torch.bfloat16 or (gate.is_contiguous() and up.is_contiguous()):
        return value.to(gate.dtype)
    bits = value.contiguous().view(torch.int32) & -65536  # the upper half of a float is its bfloat16
    return bits.view(torch.float32).to(gate.dtype)


def truncated_where_strided(gate: Tensor, up: Tensor) -> Tensor:
    """The store for operands that are not dense truncates."""
    _fits(gate, up)
    if torch.compiler.is_compiling():
        return _act(gate) * up
    y: Tensor = _ActMul.apply(gate, up, _by_strides)
    return y
