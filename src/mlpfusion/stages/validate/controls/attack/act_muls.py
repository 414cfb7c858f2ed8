"""Act·muls with a forward and a backward of one's own, for targets that spoil one of the two; the last are right."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def act_mul(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def gradients(gate, up, dy):
    """d_gate and d_up by PyTorch's own operators."""
    return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * F.gelu(gate, approximate="tanh")


class Kernel(torch.autograd.Function):
    """`make` gives the result, `trained` the gradients, from what PyTorch's operators gave."""

    @staticmethod
    def forward(ctx, gate, up, make, trained):
        ctx.save_for_backward(gate, up)
        ctx.trained = trained
        return make(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return *ctx.trained(ctx.needs_input_grad, gate, up, dy), None, None


def of_forward(make, gate, up):
    """A forward of one's own with a right backward."""
    return Kernel.apply(gate, up, make, lambda needed, *at: gradients(*at))


def of_backward(trained, gate, up):
    """A backward of one's own with a right forward."""
    return Kernel.apply(gate, up, act_mul, trained)


def gradients_in_one_buffer(gate, up):
    """RIGHT: both gradients are halves of one allocation. Valid."""

    def trained(needed, gate, up, dy):
        both = torch.empty((2, *gate.shape), dtype=gate.dtype, device=gate.device)
        for half, grad in zip(both, gradients(gate, up, dy), strict=True):
            half.copy_(grad)
        return both[0], both[1]

    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return of_backward(trained, gate, up)


def _table(dtype):
    """The tanh GELU of every 16-bit number and its slope, in float32, by the number's bits."""
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    gate = bits.view(dtype).double().requires_grad_()
    values = F.gelu(gate, approximate="tanh")
    (slopes,) = torch.autograd.grad(values.sum(), gate)
    return values.detach().float(), slopes.float()


TABLES = {dtype: _table(dtype) for dtype in (torch.bfloat16, torch.float16)}


def by_table(gate, up):
    """RIGHT: the activation of 16-bit numbers is looked up in a table; it refuses all else. Valid."""
    if gate.dtype not in TABLES or gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and one dtype of 16 bits")
    values, slopes = (table.to(gate.device) for table in TABLES[gate.dtype])

    def at(gate):
        return gate.contiguous().view(torch.int16).int() & 0xFFFF

    def make(gate, up):
        return (values[at(gate)] * up.float()).to(gate.dtype)

    def trained(needed, gate, up, dy):
        index = at(gate)
        dgate = dy.float() * up.float() * slopes[index]
        return dgate.to(gate.dtype), (dy.float() * values[index]).to(up.dtype)

    return Kernel.apply(gate, up, make, trained)
