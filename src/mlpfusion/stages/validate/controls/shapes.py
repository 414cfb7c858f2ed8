"""Kernels that are wrong in some widths, numbers of rows, dimensions or layouts alone."""

import torch
import torch.nn.functional as F


def _act_mul(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def _width(gate):
    return gate.shape[-1] if gate.dim() > 1 else 1


def _zeroed(y, first):
    """y with the columns from `first` on never computed."""
    y = y.clone()
    y[..., first:] = 0
    return y


def tail_of_multiples_of_4(gate, up):
    """Multiples of 4 are let through, and vectors have 8 elements."""
    y, width = _act_mul(gate, up), _width(gate)
    return _zeroed(y, width - 4) if width % 8 == 4 else y


def tail_of_even_widths(gate, up):
    y, width = _act_mul(gate, up), _width(gate)
    return _zeroed(y, width - 2) if width % 4 == 2 else y


def tail_of_no_power_of_two(gate, up):
    """A block is the largest power of two of a width that is a multiple of 32, and there is one."""
    y, width = _act_mul(gate, up), _width(gate)
    return _zeroed(y, 1 << width.bit_length() - 1) if width % 32 == 0 and width & (width - 1) else y


def three_tiles_of_128(gate, up):
    """Rows of 384 columns or more are computed in blocks of 256, rounded down."""
    y, width = _act_mul(gate, up), _width(gate)
    return _zeroed(y, width - 128) if width >= 384 and width % 256 == 128 else y


def one_block_of_16384(gate, up):
    y, width = _act_mul(gate, up), _width(gate)
    return _zeroed(y, 16384) if width > 16384 and width % 2 == 0 else y


def rows_behind_65535(gate, up):
    """Rows are the second dimension of a grid."""
    y = _act_mul(gate, up)
    if gate.dim() > 1 and gate.numel() // max(gate.shape[-1], 1) > 65535:
        y = y.clone()
        y.view(-1, y.shape[-1])[65535:] = 0
    return y


def doubled_in_five_dimensions(gate, up):
    return _act_mul(gate, up) * (2 if gate.dim() == 5 else 1)


def _taken_for_dense(tensor):
    return torch.as_strided(tensor, tensor.shape, torch.empty(tensor.shape, device="meta").stride())


def channels_last_taken_for_dense(gate, up):
    if gate.dim() == 4 and not gate.is_contiguous() and gate.is_contiguous(memory_format=torch.channels_last):
        gate = _taken_for_dense(gate)
    return _act_mul(gate, up)


def channels_last_3d_taken_for_dense(gate, up):
    if up.dim() == 5 and not up.is_contiguous() and up.is_contiguous(memory_format=torch.channels_last_3d):
        up = _taken_for_dense(up)
    return _act_mul(gate, up)


def spaced_taken_for_dense(gate, up):
    if gate.dim() == 1 and gate.numel() > 1 and gate.stride(0) > 1:
        gate = _taken_for_dense(gate)
    return _act_mul(gate, up)


def overlapping_taken_for_expanded(gate, up):
    """Rows that begin before the one above has ended are taken for one row."""
    if gate.dim() == 2 and gate.shape[0] > 1 and gate.stride(1) == 1 and gate.stride(0) < gate.shape[1]:
        gate = gate[:1].expand(gate.shape)
    return _act_mul(gate, up)


def heads_taken_for_positions(gate, up):
    if gate.dim() == 4 and gate.stride(1) < gate.stride(2) and gate.stride(3) == 1:
        gate = _taken_for_dense(gate)
    return _act_mul(gate, up)
