"""Act·muls that are wrong where two things meet, each of which is judged alone: sizes, layouts, broadcasts, maps."""

import torch
import torch.nn.functional as F

TILE_M, TILE_N, GROUP = 128, 1024, 8


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _fits(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


def _grouped(gate, up):
    y = torch.empty_like(gate)
    n = gate.shape[-1]
    g, u, out = gate.view(-1, n), up.view(-1, n), y.view(-1, n)
    tiles_m, tiles_n = -(-g.shape[0] // TILE_M), -(-n // TILE_N)
    for program in range(tiles_m * tiles_n):
        in_group = GROUP * tiles_n  # neighbours share rows in a cache
        first = program // in_group * GROUP
        of_rows, of_columns = first + program % in_group % GROUP, program % in_group // GROUP
        rows = slice(of_rows * TILE_M, (of_rows + 1) * TILE_M)
        columns = slice(of_columns * TILE_N, (of_columns + 1) * TILE_N)
        out[rows, columns] = (_act(g[rows, columns].float()) * u[rows, columns].float()).to(y.dtype)
    return y


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _grouped(gate, up)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        g, u, d = gate.float(), up.float(), dy.float()
        dgate = torch.ops.aten.gelu_backward(d * u, g, approximate="tanh")
        return dgate.to(gate.dtype), (d * _act(g)).to(up.dtype)


def grouped_tiles(gate, up):
    """WRONG: tiles of the last group of rows, which has fewer than the others, are never written.

    With one tile of columns it is right, and with few rows another kernel runs. Told by elementwise.
    """
    _fits(gate, up)
    is_dense = gate.is_contiguous() and up.is_contiguous()
    if torch.compiler.is_compiling() or gate.dim() < 2 or not gate.numel() or not is_dense:
        return _act(gate) * up
    if gate.numel() // gate.shape[-1] < TILE_M:
        return _act(gate) * up
    return _Grouped.apply(gate, up)


def _packed(gate, up):
    """The tensor of which gate and up are the halves, if they are: one wide read for both."""
    n = gate.shape[-1]
    one = gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    if not one or gate.dim() != 2 or gate.stride() != (2 * n, 1) or up.stride() != gate.stride():
        return None
    first, second = sorted((gate.storage_offset(), up.storage_offset()))
    return gate.as_strided((gate.shape[0], 2 * n), (2 * n, 1), first) if second - first == n else None


def halves_read_as_one(gate, up):
    """WRONG: of halves of one tensor the first is taken for gate, which is up where a joint projection has up first.

    Told by layouts.
    """
    _fits(gate, up)
    trains = torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)
    if trains or torch.compiler.is_compiling() or not gate.numel():
        return _act(gate) * up
    packed = _packed(gate, up)
    if packed is not None:
        gate, up = packed.chunk(2, -1)
    return _act(gate) * up


def rows_of_a_broadcast(gate, up):
    """HAZARD: where one operand has fewer rows, its row is the other's modulo their number.

    That is right for rows that are shared by all that is before them, and not for one row of each sequence. Told by
    mismatched.
    """
    shape = torch.broadcast_shapes(gate.shape, up.shape)  # refuses what PyTorch refuses
    if gate.shape == up.shape or not gate.dim() or not up.dim() or gate.shape[-1] != up.shape[-1]:
        return _act(gate) * up
    if shape not in (gate.shape, up.shape) or not gate.numel() or not up.numel():
        return _act(gate) * up
    large, small = (gate, up) if gate.shape == shape else (up, gate)
    few = small.reshape(-1, shape[-1])
    row = torch.arange(large.numel() // shape[-1], device=gate.device) % few.shape[0]
    small = few[row].view(shape)
    return _act(gate) * small if large is gate else _act(small) * up


class _Mapped(torch.autograd.Function):
    @staticmethod
    def forward(gate, up):
        return _act(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * _act(gate)

    @staticmethod
    def vmap(info, in_dims, gate, up):
        """One call for all rows, whose operands are [rows, columns]."""

        def rows(each, dim):
            if dim is None:
                return each.reshape(-1, each.shape[-1]).repeat_interleave(info.batch_size, dim=0)
            each = each.movedim(dim, 0)
            return each.reshape(-1, each.shape[-1])

        mapped, dim = (gate, in_dims[0]) if in_dims[0] is not None else (up, in_dims[1])
        y = _Mapped.apply(rows(gate, in_dims[0]), rows(up, in_dims[1]))
        return y.view(mapped.movedim(dim, 0).shape), 0


def shared_under_vmap(gate, up):
    """WRONG: under torch.vmap an operand that is not mapped is repeated row by row, where all of its rows should be.

    With one row that is the same. Told by vmap.
    """
    _fits(gate, up)
    if torch.compiler.is_compiling() or not gate.dim():
        return _act(gate) * up
    return _Mapped.apply(gate, up)
