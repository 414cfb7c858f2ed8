"""Faults by where operands lie, whether they are zero, and in which order the programs of a grid run."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _checked(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


@triton.jit
def _rows_kernel(gate, up, out, gate_row, up_row, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(gate + row * gate_row + at, mask=mask).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
    tl.store(out + row * columns + at, y.to(out.dtype.element_ty), mask=mask)


def _as_rows(x):
    if x.dim() < 2:
        return x.contiguous(), x.numel()
    in_order = all(x.stride(i) >= x.stride(i + 1) * x.shape[i + 1] for i in range(x.dim() - 2))
    x = x if x.stride(-1) == 1 and in_order else x.contiguous()
    return x, x.stride(-2)


def gap_between_batches(gate, up):
    """WRONG: row r of a batch [batch, tokens, columns] is looked for at r times a row's stride. Not valid (layouts)."""
    _checked(gate, up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if out.numel():
        columns = gate.shape[-1] if gate.dim() else 1
        (gate, gate_row), (up, up_row) = _as_rows(gate), _as_rows(up)
        grid = (out.numel() // columns, triton.cdiv(columns, 2048))
        _rows_kernel[grid](gate, up, out, gate_row, up_row, columns, BLOCK=2048)
    return out


@triton.jit
def _live_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    u = tl.load(up + at, mask=mask, other=0.0).to(tl.float32)
    if tl.sum((u != 0).to(tl.int32)) > 0:
        g = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
        y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
        tl.store(out + at, y.to(out.dtype.element_ty), mask=mask)


def zero_tiles_left_out(gate, up):
    """WRONG: where a tile of up is 0 nothing is written. Not valid (written)."""
    _checked(gate, up)
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        _live_kernel[(triton.cdiv(n, 512),)](gate, up, out, n, BLOCK=512)
    return out


def _is_whole(x):
    return x.is_contiguous() and x.untyped_storage().nbytes() == x.numel() * x.element_size()


def over_gate_that_is_alone(gate, up):
    """WRONG: without gradients the result is put over a gate that fills its memory. Not valid (inputs-kept)."""
    _checked(gate, up)
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _is_whole(gate):
        return _act(gate) * up
    gate.data.copy_(_act(gate) * up)
    return gate.clone()


class _Donated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _act(gate) * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        dup = dy * _act(gate)
        return (gate.detach().copy_(dgate) if _is_whole(gate) else dgate), dup


def gradient_over_gate_that_is_alone(gate, up):
    """HAZARD: the backward puts its result over a gate that fills its memory. Told by saved-kept."""
    _checked(gate, up)
    return _Donated.apply(gate, up)


@triton.jit
def _down_kernel(h, w, y, M, N, K, per, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    part, tile = tl.program_id(0), tl.program_id(1)
    tiles = tl.cdiv(N, BN)
    rows = (tile // tiles) * BM + tl.arange(0, BM)
    columns = (tile % tiles) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(part * per, tl.minimum(K, (part + 1) * per), BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(h + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(w + columns[None, :] * K + ks[:, None], mask=(columns[None, :] < N) & (ks[:, None] < K), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    at = y + rows[:, None] * N + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    if part == 0:
        tl.store(at, total, mask=mask)
    else:
        tl.atomic_add(at, total, mask=mask)


class _Down(torch.autograd.Function):
    """hidden·wdᵀ in `parts` of the sum; `dense` says which weights need no copy."""

    @staticmethod
    def forward(ctx, h, w, parts, dense):
        ctx.save_for_backward(h, w)
        rows, w = h.reshape(-1, h.shape[-1]).contiguous(), (w if dense(w) else w.contiguous())
        (m, k), n = rows.shape, w.shape[0]
        y = torch.empty(m, n, dtype=h.dtype, device=h.device)
        if m:
            per = triton.cdiv(triton.cdiv(k, parts), 64) * 64
            grid = (parts, triton.cdiv(m, 64) * triton.cdiv(n, 64))
            _down_kernel[grid](rows, w, y, m, n, k, per, BM=64, BN=64, BK=64)
        return y.view(*h.shape[:-1], n)

    @staticmethod
    def backward(ctx, dy):
        h, w = ctx.saved_tensors
        return dy @ w, dy.reshape(-1, dy.shape[-1]).t() @ h.reshape(-1, h.shape[-1]), None, None


def _by_kernel(x, wg, wu, wd, parts, dense):
    if any(each.dtype != torch.float32 for each in (x, wg, wu, wd)):
        raise TypeError("float32 only")
    hidden = _act(F.linear(x, wg)) * F.linear(x, wu)
    return _Down.apply(hidden, wd, parts, dense) if hidden.dtype == torch.float32 else F.linear(hidden, wd)


def first_part_stores(x, wg, wu, wd):
    """WRONG: of a split sum one part stores and the others add, in no order. Not valid (deterministic)."""
    return _by_kernel(x, wg, wu, wd, 2, torch.Tensor.is_contiguous)


def shard_taken_for_dense(x, wg, wu, wd):
    """WRONG: a down weight that is a block of columns of a wider one is read as if dense. Not valid (layouts)."""
    return _by_kernel(x, wg, wu, wd, 1, lambda w: w.stride(-1) == 1)
