"""Right kernels of every accepted form, which a judge of kernels must not reject."""

import importlib.util

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 4096
C = 0.7978845608028654


def eager(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def tanh_form(gate, up):
    """0.5·g·(1 + tanh z) in fp32, rounded once."""
    g = gate.float()
    return (0.5 * g * (1 + torch.tanh(C * (g + 0.044715 * g * g * g))) * up.float()).to(
        torch.promote_types(gate.dtype, up.dtype)
    )


def rounded_after_the_activation(gate, up):
    """As eager and Liger do: the activation is rounded to 16 bits before the product."""
    g = gate.float()
    return (g * torch.sigmoid(2 * C * g * (1 + 0.044715 * g * g))).to(gate.dtype) * up


class _Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("there is no double backward")
        if not dy.is_contiguous():
            raise ValueError("dy must be contiguous")
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate, dy * F.gelu(gate, approximate="tanh")


def dense_gradients_only(gate, up):
    """A backward that refuses what it cannot read, which is right."""
    if gate.dtype != up.dtype:
        raise ValueError("gate and up must have one dtype")
    return _Refusing.apply(gate, up)


@triton.jit
def exact_exp_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    z = 0.7978845608028654 * (g + 0.044715 * g * g * g)
    e = tl.exp(-2 * tl.abs(z))
    t = (1 - e) / (1 + e)
    y = 0.5 * g * (1 + tl.where(z < 0, -t, t)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def approximate_exp_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    # exp2 is one instruction on a GPU (ex2.approx) and good to two ulp.
    y = g / (1 + tl.exp2(-2.302208198144325 * (g + 0.044715 * g * g * g))) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def _launched(kernel, gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        kernel[(triton.cdiv(n, BLOCK),)](gate, up, out, n, BLOCK=BLOCK)
    return out


def exact_exp(gate, up):
    if gate.dtype is torch.float64:
        raise TypeError("it computes in float32, of which float64 is more")
    return _launched(exact_exp_kernel, gate, up)


def approximate_exp(gate, up):
    return _launched(approximate_exp_kernel, gate, up)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 2048}), triton.Config({"BLOCK": 4096}), triton.Config({"BLOCK": 1024})], key=["n"]
)
@triton.jit
def tuned_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def tuned(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n)
    return out


def mlp(x, wg, wu, wd):
    return F.linear(F.gelu(F.linear(x, wg), approximate="tanh") * F.linear(x, wu), wd)


class Layer(torch.nn.Module):
    """A gated MLP as models have it, built from a config."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


if importlib.util.find_spec("liger_kernel") is not None:

    @triton.jit
    def _tanh(x):
        return 2 * tl.sigmoid(2 * x) - 1

    def liger(gate, up):
        """Liger's kernel; its backward writes the gradients over what was saved for it."""
        from liger_kernel.ops import geglu

        if gate.device.type == "cpu":
            geglu.tanh = _tanh  # Triton's interpreter has no libdevice.tanh
        return geglu.LigerGELUMulFunction.apply(gate, up)
