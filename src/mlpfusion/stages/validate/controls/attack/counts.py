"""Faults by how many elements, rows, columns or calls there are, by a rule for vmap, and in a slope of 16 bits."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


def _checked(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


@triton.jit
def _strided_kernel(gate, up, out, n, steps, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    hop = tl.num_programs(0).to(tl.int64) * BLOCK
    for i in range(steps):
        at = first + i * hop + tl.arange(0, BLOCK)
        mask = at < n
        g = tl.load(gate + at, mask=mask).to(tl.float32)
        u = tl.load(up + at, mask=mask).to(tl.float32)
        y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
        tl.store(out + at, y.to(out.dtype.element_ty), mask=mask)


def steps_rounded_down(gate, up):
    """WRONG: 1056 programs take whole steps over their blocks and leave the rest out. Not valid (elementwise)."""
    _checked(gate, up)
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        programs = min(triton.cdiv(n, 1024), 1056)
        _strided_kernel[(programs,)](gate, up, out, n, max(1, n // (programs * 1024)), BLOCK=1024)
    return out


class _ActMul(torch.autograd.Function):
    """`ring`: buffers that results take turns in; `slots`: what is kept for a backward takes turns in."""

    @staticmethod
    def forward(ctx, gate, up, ring, slots):
        y = _act(gate) * up
        kept = (gate.clone(), up.clone()) if slots is not None else None
        if slots is not None:
            slots.append(kept)
            if len(slots) > 8:
                for old, new in zip(slots.pop(0), kept, strict=True):
                    if old.shape == new.shape and old.dtype == new.dtype:
                        old.copy_(new)
        ctx.kept = kept or (gate, up)
        if ring is None:
            return y
        if ring and (ring[0].shape, ring[0].dtype) != (y.shape, y.dtype):
            ring.clear()
        ring.append(torch.empty_like(y) if len(ring) < 4 else ring.pop(0))
        ring[-1].data.copy_(y)
        return ring[-1].view(y.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.kept
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * _act(gate), None, None


_SLOTS = []


def eight_slots_for_backwards(gate, up):
    """WRONG: the ninth call overwrites what the first keeps for its backward. Not valid (apart)."""
    _checked(gate, up)
    return _act(gate) * up if torch.compiler.is_compiling() else _ActMul.apply(gate, up, None, _SLOTS)


class _Batched(torch.autograd.Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(gate, up):
        return _act(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * _act(gate)

    @staticmethod
    def vmap(info, in_dims, gate, up):
        if in_dims[1] is None and gate.dim() > up.dim():
            up = up.unsqueeze(in_dims[0]).expand_as(gate)
        if in_dims[0] is None:
            return NotImplemented
        return _Batched.apply(gate, up), in_dims[0]


def mapped_over_the_dimension_of_gate(gate, up):
    """WRONG: under vmap, up is mapped over gate's dimension, whatever its own is. Not valid (vmap)."""
    _checked(gate, up)
    return _Batched.apply(gate, up)


def tail_of_a_split_sum(x, wg, wu, wd):
    """WRONG: eight parts of a sum are whole tiles of 64 columns: the rest is left out. Not valid (mlp-values)."""
    hidden = _act(F.linear(x, wg)) * F.linear(x, wu)
    if wd.shape[1] < 4096:
        return F.linear(hidden, wd)
    per = wd.shape[1] // 8 // 64 * 64
    parts = (slice(part * per, (part + 1) * per) for part in range(8))
    return sum(F.linear(hidden[..., part], wd[:, part]).float() for part in parts).to(F.linear(x, wg).dtype)


def exact_for_few_rows(x, wg, wu, wd):
    """WRONG: up to 16 rows of 16 bits get the exact GELU. Not valid (function)."""
    if x.dtype is torch.float32 or x.numel() > 16 * x.shape[-1]:
        return _mlp(x, wg, wu, wd)
    return F.linear(F.gelu(F.linear(x, wg)) * F.linear(x, wu), wd)


class _Trained(torch.autograd.Function):
    """`slope` is the form of GELU whose derivative is taken, `over` adds up products over rows."""

    @staticmethod
    def forward(ctx, x, wg, wu, wd, slope, over):
        gate, up = F.linear(x, wg), F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, gate, up)
        ctx.slope, ctx.over = slope, over
        return F.linear(_act(gate) * up, wd)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, wg, wu, wd, gate, up = ctx.saved_tensors
        act, dh = _act(gate), dy @ wd
        dgate = torch.ops.aten.gelu_backward(dh * up, gate, approximate=ctx.slope)
        dup = dh * act
        products = ((dgate, x), (dup, x), (dy, act * up))
        dw = (ctx.over(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])) for a, b in products)
        return dgate @ wg + dup @ wu, *dw, None, None


def slope_of_the_exact_form(x, wg, wu, wd):
    """WRONG: in 16 bits the slope is that of the exact GELU. Not valid (mlp-gradients)."""
    if len({each.dtype for each in (x, wg, wu, wd)}) > 1 or x.dtype is torch.float32:
        return _mlp(x, wg, wu, wd)
    if torch.is_autocast_enabled(x.device.type):
        return _mlp(x, wg, wu, wd)
    return _Trained.apply(x, wg, wu, wd, "none", lambda a, b: a.t() @ b)


def _whole_chunks(a, b):
    chunks = a.shape[0] // 16384
    if chunks < 2:
        return a.t() @ b
    parts = (slice(i * 16384, (i + 1) * 16384) for i in range(chunks))
    return sum((a[part].t() @ b[part]).float() for part in parts).to(a.dtype)


def whole_chunks_of_rows(x, wg, wu, wd):
    """WRONG: weights' gradients are sums over whole chunks of 16,384 rows. Not valid (mlp-gradients)."""
    if len({each.dtype for each in (x, wg, wu, wd)}) > 1 or torch.is_autocast_enabled(x.device.type):
        return _mlp(x, wg, wu, wd)
    return _Trained.apply(x, wg, wu, wd, "tanh", _whole_chunks)


_RING = []


def four_results_in_training(gate, up):
    """WRONG: with gradients on results take turns in four buffers. Not valid (apart)."""
    _checked(gate, up)
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)):
        return _act(gate) * up
    return _ActMul.apply(gate, up, _RING, None)
