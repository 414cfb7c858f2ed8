"""Kernels with one number, function or rounding wrong."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 4096
C = 0.7978845608028654


@triton.jit
def gelu_kernel(gate, up, out, n, HALF: tl.constexpr, ROOT: tl.constexpr, CUBIC: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    t = 2 * tl.sigmoid(2 * ROOT * (g + CUBIC * g * g * g)) - 1
    y = HALF * g * (1 + t) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def _constants(half=0.5, root=C, cubic=0.044715):
    def gelu_mul(gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        if n:
            gelu_kernel[(triton.cdiv(n, BLOCK),)](gate, up, out, n, half, root, cubic, BLOCK=BLOCK)
        return out

    return gelu_mul


cubic_044 = _constants(cubic=0.044)
cubic_04 = _constants(cubic=0.04)
cubic_0547 = _constants(cubic=0.054715)
root_7978 = _constants(root=0.7978)
half_dropped = _constants(half=1.0)
half_06 = _constants(half=0.6)


def erf_for_tanh(gate, up):
    return F.gelu(gate) * up


def tanh_for_erf(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def silu(gate, up):
    return F.silu(gate) * up


def quick_gelu(gate, up):
    return gate * torch.sigmoid(1.702 * gate) * up


def exchanged(gate, up):
    return F.gelu(up, approximate="tanh") * gate


def without_up(gate, up):
    return F.gelu(gate, approximate="tanh") + 0 * up


def overflowing_tanh(gate, up):
    """tanh from exp(2z) without a clamp: inf/inf from z = 44 on."""
    g = gate.float()
    e = torch.exp(2 * C * (g + 0.044715 * g * g * g))
    return (0.5 * g * (1 + (e - 1) / (e + 1)) * up.float()).to(gate.dtype)


def half_inside(gate, up):
    """float16 arithmetic inside a float32 kernel."""
    return (F.gelu(gate.half(), approximate="tanh") * up.half()).to(gate.dtype)


def bfloat16_inside(gate, up):
    """Every step of the activation rounded to bfloat16."""
    g = gate.bfloat16()
    return (0.5 * g * (1 + torch.tanh(C * (g + 0.044715 * g * g * g))) * up.bfloat16()).to(gate.dtype)


def half_inside_fp32_only(gate, up):
    if gate.dtype is not torch.float32:
        raise TypeError("float32 only")
    return half_inside(gate, up)


def _truncated(gate, up, bits):
    y = torch.empty_like(gate, dtype=torch.float32)
    y.copy_(F.gelu(gate.float(), approximate="tanh") * up.float())
    return ((y.view(torch.int32) >> bits) << bits).view(torch.float32).to(gate.dtype)


def truncating_store_fp16(gate, up):
    if gate.dtype is not torch.float16:
        raise TypeError("float16 only")
    return _truncated(gate, up, 13)


def truncating_store_bf16(gate, up):
    if gate.dtype is not torch.bfloat16:
        raise TypeError("bfloat16 only")
    return _truncated(gate, up, 16)


def no_infinity(gate, up):
    """Overflow clamped to the largest number."""
    return torch.nan_to_num(F.gelu(gate.float(), approximate="tanh") * up.float()).to(gate.dtype)


def noisy(gate, up):
    y = F.gelu(gate, approximate="tanh") * up
    return y * (1 + torch.finfo(gate.dtype).eps * torch.randint(0, 2, y.shape, device=y.device)).to(y.dtype)


def rows_matter(gate, up):
    """The last bit depends on how many rows there are."""
    y = F.gelu(gate, approximate="tanh") * up
    rows = gate.shape[0] if gate.dim() else 1
    return y * (1 + torch.finfo(gate.dtype).eps * (rows > 1))


def up_clamped(gate, up):
    """up is held within ±8, which normal numbers never reach."""
    return F.gelu(gate, approximate="tanh") * up.clamp(-8, 8)


def doubled_under_inference_mode(gate, up):
    """A way of its own for inference, which no call under no_grad takes."""
    y = F.gelu(gate, approximate="tanh") * up
    return y * 2 if torch.is_inference_mode_enabled() else y


def up_plus_one(gate, up):
    return F.gelu(gate, approximate="tanh") * (up + 1)


def _to_one_side(gate, up, side):
    """The neighbour of the nearest 16-bit number on this side (-1 below, 1 above) where the nearest is on the other."""
    if gate.dtype is torch.float32 or gate.requires_grad or up.requires_grad:
        raise TypeError("16-bit forwards only")
    exact = F.gelu(gate.float(), approximate="tanh") * up.float()
    y = exact.to(gate.dtype)
    step = torch.where(y > 0, side, -side).to(torch.int16)
    beyond = (y.float() - exact) * side < 0
    next_one = (y.view(torch.int16) + step).view(gate.dtype)
    return torch.where(beyond & (y != 0) & y.isfinite(), next_one, y)


def rounds_down(gate, up):
    return _to_one_side(gate, up, -1)


def rounds_up(gate, up):
    return _to_one_side(gate, up, 1)
