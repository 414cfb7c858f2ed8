"""Right forwards whose backward changes the gradient that arrives, or is wrong in some shapes of it."""

import torch
import torch.nn.functional as F


class _Changed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, change):
        ctx.save_for_backward(gate, up)
        ctx.change = change
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("there is no double backward")
        gate, up = ctx.saved_tensors
        dy = ctx.change(dy)
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate, dy * F.gelu(gate, approximate="tanh"), None


def _changed(gate, up, change):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return _Changed.apply(gate, up, change)


def as_it_is(gate, up):
    return _changed(gate, up, lambda dy: dy)


def clamped_to_256(gate, up):
    return _changed(gate, up, lambda dy: dy.clamp(-256, 256))


def clamped_to_4096(gate, up):
    return _changed(gate, up, lambda dy: dy.clamp(-4096, 4096))


def tiny_dropped(gate, up):
    return _changed(gate, up, lambda dy: dy.masked_fill(dy.abs() < 2**-16, 0))


def nan_hidden(gate, up):
    return _changed(gate, up, lambda dy: dy.nan_to_num(nan=0.0))


def infinity_hidden(gate, up):
    return _changed(gate, up, lambda dy: torch.where(dy.isinf(), 0, dy))


def through_float16(gate, up):
    return _changed(gate, up, lambda dy: dy.half().to(dy.dtype))


def _tail_dropped(dy):
    if dy.dim() > 1 and dy.shape[-1] % 8 == 4:
        dy = dy.clone()
        dy[..., -4:] = 0
    return dy


def tail_of_multiples_of_4_dropped(gate, up):
    return _changed(gate, up, _tail_dropped)


def doubled_in_four_dimensions(gate, up):
    return _changed(gate, up, lambda dy: dy * 2 if dy.dim() == 4 else dy)


def _dense_in_fp16(dy):
    if dy.dtype is torch.float16 and dy.dim() == 2 and dy.stride(1) == 1 and dy.stride(0) > dy.shape[1]:
        dy = torch.as_strided(dy, dy.shape, (dy.shape[1], 1))
    return dy


def fp16_taken_for_dense(gate, up):
    return _changed(gate, up, _dense_in_fp16)
