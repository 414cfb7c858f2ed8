"""MLPs of weights and rows that do not lie where they are looked for; the last one is right."""

import collections

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


def _rows(x):
    """x as [rows, columns]: its own memory where all rows are equally far apart, else a copy."""
    if x.dim() < 3 or x.stride(-1) != 1 or not x.numel():
        return x
    for d in range(x.dim() - 2):
        if x.shape[d + 1] != 1 and x.stride(d) != x.stride(d + 1) * x.shape[d + 1]:  # strides of size 1 say nothing
            return x.reshape(-1, x.shape[-1])
    return x.as_strided((x.numel() // x.shape[-1], x.shape[-1]), (x.stride(-2), 1))


def last_tokens(x, wg, wu, wd):
    """WRONG: without gradients, h[:, -1:] of several sequences is read as following tokens of the first.

    Told by layouts.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _mlp(x, wg, wu, wd)
    return _mlp(_rows(x), wg, wu, wd).view(*x.shape[:-1], wd.shape[0])


def one_storage_taken_for_packed(x, wg, wu, wd):
    """WRONG: where gate's and up's weights are parts of one buffer, up's are taken to follow gate's at once.

    Told by layouts.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return _mlp(x, wg, wu, wd)
    is_packed = (
        wg.untyped_storage().data_ptr() == wu.untyped_storage().data_ptr()
        and wg.shape == wu.shape
        and wg.is_contiguous()
        and wu.is_contiguous()
        and wu.storage_offset() > wg.storage_offset()
    )
    if not is_packed:
        return _mlp(x, wg, wu, wd)
    gate, up = F.linear(x, wg.as_strided((2 * wg.shape[0], wg.shape[1]), (wg.shape[1], 1))).chunk(2, -1)
    return F.linear(_act(gate) * up, wd)


def _whole_blocks(x, weight):
    """x·weightᵀ over whole blocks of a power of two, up to 256, of the columns."""
    columns = weight.shape[1]
    block = min(256, 1 << (columns.bit_length() - 1))
    return F.linear(x[..., : columns // block * block], weight[:, : columns // block * block])


def tail_left_out_in_decoding(x, wg, wu, wd):
    """WRONG: without gradients, for up to four rows, sums leave out columns behind the last whole block.

    Told by mlp-values.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not 0 < x.numel() // x.shape[-1] <= 4:
        return _mlp(x, wg, wu, wd)
    return _whole_blocks(_act(_whole_blocks(x, wg)) * _whole_blocks(x, wu), wd)


TILE = 32
_BUFFERS = collections.OrderedDict()


def _buffer(rows, columns, dtype, device):
    """Memory for a padded dy; the last sixteen sizes are kept."""
    key = rows, columns, dtype, device
    made = _BUFFERS.pop(key, None)
    if made is None:
        made = torch.zeros(rows, columns, dtype=dtype, device=device)  # rows of padding are 0
    _BUFFERS[key] = made
    if len(_BUFFERS) > 16:
        _BUFFERS.popitem(last=False)
    return made


def _padded(x):
    """x with its last row again, up to whole tiles of rows, so that no product sees what is no number."""
    missing = -x.shape[0] % TILE
    return torch.cat([x, x[-1:].expand(missing, -1)]) if missing else x


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wg, wu, wd):
        ctx.rows = x.shape[0]
        x = _padded(x)
        gate, up = F.linear(x, wg), F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, gate, up)
        return F.linear(_act(gate) * up, wd)[: ctx.rows].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, wg, wu, wd, gate, up = ctx.saved_tensors
        padded = _buffer(x.shape[0], dy.shape[1], dy.dtype, dy.device)
        padded[: ctx.rows].copy_(dy)
        act, dh = _act(gate), padded @ wd
        dgate, dup = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh"), dh * act
        dx = (dgate @ wg + dup @ wu)[: ctx.rows]
        return dx, dgate.t() @ x, dup.t() @ x, padded.t() @ (act * up)


def padding_of_an_earlier_batch(x, wg, wu, wd):
    """WRONG: gradients of weights take in rows of dy that an earlier, longer batch left behind.

    Told by mlp-gradients.
    """
    rows = x.numel() // max(1, x.shape[-1])
    is_plain = len({each.dtype for each in (x, wg, wu, wd)}) == 1 and not torch.is_autocast_enabled(x.device.type)
    if rows < 64 or torch.compiler.is_compiling() or not torch.is_grad_enabled() or not is_plain:
        return _mlp(x, wg, wu, wd)
    return _Tiled.apply(x.reshape(rows, x.shape[-1]), wg, wu, wd).view(*x.shape[:-1], wd.shape[0])


def rows_gathered_and_scattered(x, wg, wu, wd):
    """RIGHT: rows in another order, gate and up by one batched product of stacked weights, and rows scattered back."""
    flat = x.reshape(-1, x.shape[-1])
    order = torch.arange(flat.shape[0] - 1, -1, -1, device=x.device)
    gathered = flat.index_select(0, order)
    both = torch.matmul(gathered.unsqueeze(0), torch.stack((wg, wu)).transpose(1, 2))
    hidden = F.gelu(both[0], approximate="tanh") * both[1]
    y = F.linear(hidden, wd)
    back = torch.zeros_like(y).index_add(0, order, y)
    return back.view(*x.shape[:-1], wd.shape[0])
