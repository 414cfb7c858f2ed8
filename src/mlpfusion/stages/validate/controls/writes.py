"""Kernels that write too little, too much, or in the wrong place."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def kernel(gate, up, out, n, MASK: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    mask = inside
    if MASK == "inverted":
        mask = offsets > n
    elif MASK == "one less":
        mask = offsets < n - 1
    elif MASK == "one more":
        mask = offsets <= n
    g = tl.load(gate + offsets, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + (offsets + SHIFT) % n, mask=inside, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def _launched(gate, up, mask="right", shift=0, whole=False):
    out = torch.empty_like(gate)
    n = out.numel()
    programs = n // BLOCK if whole else triton.cdiv(n, BLOCK)
    if programs:
        kernel[(programs,)](gate, up, out, n, mask, shift, BLOCK=BLOCK)
    return out


def mask_inverted(gate, up):
    return _launched(gate.contiguous(), up.contiguous(), "inverted")


def last_left_out(gate, up):
    return _launched(gate.contiguous(), up.contiguous(), "one less")


def one_too_many(gate, up):
    return _launched(gate.contiguous(), up.contiguous(), "one more")


def tail_left_out(gate, up):
    return _launched(gate.contiguous(), up.contiguous(), whole=True)


def neighbour_read(gate, up):
    """up is read one place further on."""
    return _launched(gate.contiguous(), up.contiguous(), shift=1)


def strides_ignored(gate, up):
    """Whatever the layout, memory is read from the first element on."""
    return _launched(gate, up)


def some_not_written(gate, up):
    """Results of 0 are left out, as if the memory were 0."""
    out = torch.empty_like(gate)
    y = F.gelu(gate, approximate="tanh") * up
    kept = y.abs() > 1e-3
    out[kept] = y[kept]
    return out


def inputs_overwritten(gate, up):
    y = F.gelu(gate, approximate="tanh") * up
    with torch.no_grad():
        gate.zero_()
    return y


_BUFFERS = {}


def one_buffer(gate, up):
    """The result lives in a buffer that the next call of that shape reuses."""
    key = (gate.shape, gate.dtype, gate.device)
    if key not in _BUFFERS:
        _BUFFERS[key] = torch.zeros(gate.shape, dtype=gate.dtype, device=gate.device)
    with torch.no_grad():
        return _BUFFERS[key].copy_(F.gelu(gate, approximate="tanh") * up)


_TUNED = [triton.Config({"BLOCK": 2048, "TAIL": True}), triton.Config({"BLOCK": 1024, "TAIL": False})]


@triton.autotune(configs=_TUNED, key=["n"])
@triton.jit
def tuned_kernel(gate, up, out, n, TAIL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n if TAIL else offsets < n // BLOCK * BLOCK
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def one_configuration_wrong(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n)
    return out


def rows_taken_for_even(gate, up):
    """Rows are a stride(-2) apart, which those of a permuted [a, b, columns] are not."""
    if gate.dim() > 2 and gate.stride(-1) == 1 and gate.numel():
        n, columns = gate.numel(), gate.shape[-1]
        rows = torch.arange(n // columns, device=gate.device)[:, None] * gate.stride(-2)
        index = (rows + torch.arange(columns, device=gate.device)) % n  # a kernel would read past the end
        gate = torch.as_strided(gate, (n,), (1,))[index].view(gate.shape)
    return F.gelu(gate, approximate="tanh") * up


def shapes_not_compared(gate, up):
    """up is read as if it were as large as gate."""
    return _launched(gate.contiguous(), up.contiguous())


def _narrow(kernel):
    """Wrong in 16 bits alone, as a kernel is that leaves float32 to PyTorch's operators."""

    def act_mul(gate, up):
        return F.gelu(gate, approximate="tanh") * up if gate.dtype is torch.float32 else kernel(gate, up)

    return act_mul


narrow_strides_ignored = _narrow(strides_ignored)
narrow_inputs_overwritten = _narrow(inputs_overwritten)
narrow_one_buffer = _narrow(one_buffer)
narrow_last_left_out = _narrow(last_left_out)


def up_strides_ignored(gate, up):
    """gate's layout is looked at, and up is taken to have the same."""
    if not gate.is_contiguous():
        gate, up = gate.contiguous(), up.contiguous()
    return _launched(gate, up)


def one_storage_wrong(gate, up):
    """Halves of one tensor are read as if one followed the other."""
    if gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr() and not gate.is_contiguous():
        memory = torch.as_strided(gate, (2, *gate.shape), (gate.numel(), *torch.empty(gate.shape).stride()))
        gate, up = memory[0], memory[1]
    return _launched(gate.contiguous(), up.contiguous())


def stride_0_wrong(gate, up):
    """An operand that is expanded along its columns is read as if it were dense."""
    if gate.dim() and gate.stride(-1) == 0 and gate.numel() > 1:
        return torch.zeros_like(gate, memory_format=torch.contiguous_format)
    return _launched(gate.contiguous(), up.contiguous())


def vectors_of_8(gate, up):
    """Whole blocks of vectors only: what is left behind the last block is not written."""
    if gate.numel() % 8:
        raise ValueError("the number of elements must be a multiple of 8")
    return _launched(gate.contiguous(), up.contiguous(), whole=gate.numel() % 256 != 0)


def rows_behind_64_wrong(gate, up):
    """Rows are taken modulo 64, which no small shape shows."""
    y = F.gelu(gate, approximate="tanh") * up
    if gate.numel() > 32768:
        rows = y.view(-1, 64)
        return rows[torch.arange(rows.shape[0], device=y.device) % 64].view(y.shape) if y.numel() % 64 == 0 else y
    return y


def first_index_of_four_left_out(gate, up):
    """An index is made of the last three of its parts: every batch is the first."""
    y = F.gelu(gate, approximate="tanh") * up
    return y[:1].expand_as(y).contiguous() if y.dim() == 4 else y


def up_of_one_column(gate, up):
    """A column of up for many is taken, and its first number used for all rows."""
    if up.shape != gate.shape:
        if up.dim() != gate.dim() or up.shape[0] != gate.shape[0]:
            raise ValueError("gate and up must have one shape")
        up = up.reshape(-1)[:1].expand(gate.shape)
    return F.gelu(gate, approximate="tanh") * up


def large_never_written(gate, up):
    return torch.empty_like(gate) if gate.numel() > 8192 else F.gelu(gate, approximate="tanh") * up
