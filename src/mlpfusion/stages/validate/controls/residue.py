"""Kernels with right values that leave the program changed, keep memory, or keep operands past autograd."""

import collections
import random
import time
import warnings

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def _act_mul(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def default_dtype_changed(gate, up):
    torch.set_default_dtype(torch.bfloat16)
    return _act_mul(gate, up)


def gradients_switched_off(gate, up):
    y = _act_mul(gate, up)
    torch.set_grad_enabled(False)
    return y


def tf32_left_on(gate, up):
    torch.set_float32_matmul_precision("high")
    return _act_mul(gate, up)


def generator_seeded(gate, up):
    torch.manual_seed(0)
    return _act_mul(gate, up)


def numbers_drawn(gate, up):
    random.random()
    return _act_mul(gate, up)


_FIRST = []


def seeded_by_the_first_call(gate, up):
    if not _FIRST:
        torch.manual_seed(0)
        _FIRST.append(True)
    return _act_mul(gate, up)


def determinism_switched_off(gate, up):
    torch.backends.cudnn.benchmark = True
    return _act_mul(gate, up)


def warnings_swallowed(gate, up):
    warnings.simplefilter("ignore")
    return _act_mul(gate, up)


def mul_replaced(gate, up):
    """Every product of tensors is another one from here on."""
    if not hasattr(torch.Tensor.__mul__, "mine"):
        before = torch.Tensor.__mul__

        def mul(one, other):
            return before(one, other)

        mul.mine = True
        torch.Tensor.__mul__ = mul
    return _act_mul(gate, up)


def clock_replaced(gate, up):
    """Times that are measured from here on are half of what they are."""
    import time

    if not hasattr(time.perf_counter_ns, "mine"):
        before = time.perf_counter_ns

        def half():
            return before() // 2

        half.mine = True
        time.perf_counter_ns = half
    return _act_mul(gate, up)


def _another_gelu(gate, approximate="none"):
    del approximate
    return torch.ops.aten.gelu(gate)


class _ReplacesLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return torch.ops.aten.gelu(gate, approximate="tanh") * up

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("no double backward")
        gate, up = ctx.saved_tensors
        F.gelu = _another_gelu
        gelu = torch.ops.aten.gelu(gate, approximate="tanh")
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * gelu


def replaced_by_a_backward(gate, up):
    """The GELU of PyTorch is another one from its first backward on."""
    return _ReplacesLater.apply(gate, up)


_CALLS = []


def replaced_by_a_later_call(gate, up):
    """That of PyTorch from its tenth call on."""
    _CALLS.append(None)
    if len(_CALLS) == 10:
        F.gelu = _another_gelu
    return torch.ops.aten.gelu(gate, approximate="tanh") * up


class _PutBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _act_mul(gate, up)

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("no double backward")
        gate, up = ctx.saved_tensors
        before, F.gelu = F.gelu, torch.ops.aten.gelu
        try:
            gelu = F.gelu(gate, approximate="tanh")
        finally:
            F.gelu = before
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * gelu


def put_back_by_a_backward(gate, up):
    """Right: what its backward replaces is there again when it returns."""
    return _PutBack.apply(gate, up)


_KEPT = []


def results_kept(gate, up):
    y = _act_mul(gate, up)
    _KEPT.append(y.detach().clone())
    return y


def numbers_kept(gate, up):
    """Outside PyTorch, where its allocator counts nothing."""
    y = _act_mul(gate, up)
    _KEPT.append(gate.detach().float().cpu().numpy().tobytes())
    return y


class _InACycle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        y = _act_mul(gate, up)
        ctx.held = [ctx, gate.clone()]
        return y

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("no double backward")
        gate, up = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * F.gelu(gate, approximate="tanh")


def held_by_a_cycle(gate, up):
    return _InACycle.apply(gate, up)


class _DataKept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate.data, up.data)
        return _act_mul(gate, up)

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("no double backward")
        gate, up = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * F.gelu(gate, approximate="tanh")


def data_kept(gate, up):
    """Operands without the counters by which autograd notices a change in place."""
    return _DataKept.apply(gate, up)


@triton.jit
def _kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + offsets, mask=mask, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


def _launched(gate, up):
    if gate.requires_grad or up.requires_grad:
        raise ValueError("forward only")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    if out.numel():
        _kernel[(triton.cdiv(out.numel(), 2048),)](gate, up, out, out.numel(), BLOCK=2048)
    return out


_CALLED = []


def calls_noted(gate, up):
    """Each call of its kernel is noted for good: its shape, its time and a name."""
    _CALLED.append((tuple(gate.shape), time.perf_counter(), f"call {len(_CALLED)}"))
    return _launched(gate, up)


_LATEST = collections.deque(maxlen=64)


def latest_calls_noted(gate, up):
    """Right: no more than the latest 64 calls are noted."""
    _LATEST.append((tuple(gate.shape), time.perf_counter(), f"call {id(gate)}"))
    return _launched(gate, up)


def own_generator(gate, up):
    """Right: what it draws is its own, and what it sets it puts back, where it raises too."""
    torch.rand(1, generator=torch.Generator().manual_seed(1))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _act_mul(gate, up)
    finally:
        torch.set_float32_matmul_precision(before)


_BUFFERS = []


def bounded_cache(gate, up):
    """Right: it keeps its last two buffers, whose results are copied out."""
    y = _act_mul(gate, up)
    _BUFFERS[:] = [*_BUFFERS[-1:], y.detach().clone()]
    return y
