"""Kernels that read or write outside of their operands, and right ones that read there and use nothing of it."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def kernel(gate, up, out, n, FIRST: tl.constexpr, LAST: tl.constexpr, SCRATCH: tl.constexpr, BLOCK: tl.constexpr):
    """up is taken FIRST elements further on in the first place, and LAST ones further on in the last."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    shift = tl.where(offsets == 0, FIRST, 0) + tl.where(offsets == n - 1, LAST, 0)
    g = tl.load(gate + offsets, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + offsets + shift, mask=mask, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)
    if SCRATCH:
        tl.store(gate + n + offsets, y.to(gate.dtype.element_ty), mask=offsets < SCRATCH)


@triton.jit
def padded_kernel(gate, up, out, n, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    """Whole blocks are read; what is behind the end is not used, or masked with a number."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask, other=OTHER).to(tl.float32)
    u = tl.load(up + offsets, mask=mask, other=OTHER).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def _launched(gate, up, first=0, last=0, scratch=0):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        kernel[(triton.cdiv(n, BLOCK),)](gate, up, out, n, first, last, scratch, BLOCK=BLOCK)
    return out


def reads_behind(gate, up):
    """The last element gets the number behind the end of up."""
    return _launched(gate, up, last=1)


def reads_before(gate, up):
    """The first element gets the number before the start of up."""
    return _launched(gate, up, first=-1)


def writes_behind_gate(gate, up):
    """Three elements behind gate serve as scratch memory."""
    return _launched(gate, up, scratch=3)


def masked_with_0(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    if out.numel():
        padded_kernel[(triton.cdiv(out.numel(), BLOCK),)](gate, up, out, out.numel(), 0.0, BLOCK=BLOCK)
    return out


def masked_with_7(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    if out.numel():
        padded_kernel[(triton.cdiv(out.numel(), BLOCK),)](gate, up, out, out.numel(), 7.0, BLOCK=BLOCK)
    return out


def _outside(tensor, place):
    """The element `place` elements behind the first of a tensor, which may be none of its own."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + place)


def _right(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def read_and_dropped(gate, up):
    """The element behind the end is read, and a `where` drops it."""
    y = _right(gate, up)
    if not _has_room(up):
        return y
    return y + torch.where(torch.zeros((), dtype=torch.bool, device=y.device), _outside(up, up.numel()), 0).view(())


def _has_room(tensor):
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.numel() > 0 and tensor.is_contiguous() and tensor.storage_offset() + tensor.numel() < held


def writes_before(gate, up):
    """The result is written from one element before its start on, as an index that begins at -1 does."""
    out = torch.empty_like(gate)
    out.copy_(_right(gate, up))
    if out.numel() and out.is_contiguous() and out.storage_offset():
        _outside(out, -1).zero_()
    return out


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _right(gate, up)

    @classmethod
    def backward(cls, ctx, dy):
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        dup = dy * F.gelu(gate, approximate="tanh")
        if dgate.numel() and dy.is_contiguous() and gate.is_contiguous() and dy.storage_offset() and _has_room(dy):
            cls.wrong(gate, up, dy, dgate)
        return dgate, dup


class _ReadsBehind(_Outside):
    @staticmethod
    def wrong(gate, up, dy, dgate):
        dgate.view(-1)[-1:] *= _outside(dy, dy.numel()) / dy.reshape(-1)[-1]


class _ReadsBefore(_Outside):
    @staticmethod
    def wrong(gate, up, dy, dgate):
        if gate.storage_offset():
            dgate.view(-1)[:1] += _outside(gate, -1) * dy.reshape(-1)[:1]


class _WritesBehind(_Outside):
    @staticmethod
    def wrong(gate, up, dy, dgate):
        _outside(dy, dy.numel()).zero_()


def backward_reads_behind_dy(gate, up):
    return _ReadsBehind.apply(gate, up)


def backward_reads_before_gate(gate, up):
    return _ReadsBefore.apply(gate, up)


def backward_writes_behind_dy(gate, up):
    return _WritesBehind.apply(gate, up)


def padding_cleared(gate, up):
    """gate is cleared to the end of its row of a wider tensor, of which it is a part."""
    if gate.dim() == 2 and gate.stride(1) == 1 and gate.stride(0) > gate.shape[1] and gate.storage_offset():
        before = gate.storage_offset() % gate.stride(0)
        gate.as_strided((gate.shape[0], before), gate.stride(), gate.storage_offset() - before).zero_()
    return _right(gate, up)


def mlp_rows_too_long(x, wg, wu, wd):
    """The sum of gate takes one column more than a row of x and of its weight has."""
    hidden = F.gelu(F.linear(x, wg), approximate="tanh") * F.linear(x, wu)
    y = F.linear(hidden, wd)
    if y.numel() and x.is_contiguous() and _has_room(x):
        y.view(-1)[-1:] += _outside(x, x.numel())
    return y


class LayerRowsTooLong(torch.nn.Module):
    """The last sum of down takes one column more than a row of its weight has."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        y = self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))
        weight = self.down_proj.weight
        if y.numel() and not y.requires_grad and _has_room(weight):
            y.view(-1)[-1:] += _outside(weight, weight.numel())
        return y


@triton.jit
def _written_kernel(gate, up, out, n, BEYOND, BLOCK: tl.constexpr):
    """Of the last BEYOND elements there is nothing to compute."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    u = tl.load(up + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=offsets < n + BEYOND)


def _written_to(gate, up, out, beyond):
    if gate.requires_grad or up.requires_grad:
        raise ValueError("forward only")
    gate, up = gate.contiguous(), up.contiguous()
    n = gate.numel()
    if n:
        _written_kernel[(triton.cdiv(n + beyond, BLOCK),)](gate, up, out, n, beyond, BLOCK=BLOCK)
    return out.view(-1)[:n].view(gate.shape).clone()


def overruns_a_copy(gate, up):
    """An odd number of elements is written to one more, behind a copy of gate; the result is another copy."""
    return _written_to(gate, up, gate.clone(memory_format=torch.contiguous_format), gate.numel() % 2)


def copy_with_room(gate, up):
    """Right: so it is, where the copy has room for one more."""
    return _written_to(gate, up, torch.cat((gate.reshape(-1), gate.new_ones(1))), gate.numel() % 2)


class _OverrunByBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _right(gate, up)

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("no double backward")
        gate, up = ctx.saved_tensors
        dup = (dy * F.gelu(gate, approximate="tanh")).contiguous()
        n = dup.numel()
        if n:
            copy, out = dup.clone(), dup + 0
            _cleared_kernel[(1,)](out, n - 1, n + n % 2, BLOCK=2)
            dup = copy
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dup


@triton.jit
def _cleared_kernel(out, first, end, BLOCK: tl.constexpr):
    offsets = first + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.zeros((BLOCK,), dtype=out.dtype.element_ty), mask=offsets < end)


def backward_overruns_a_product(gate, up):
    """A backward clears one element behind a tensor that an operator has made, and that it does not return."""
    return _OverrunByBackward.apply(gate, up)
