"""Kernels that take the activation by its name, right and wrong; each is judged once for every activation."""

import torch

from mlpfusion.backends.eager import activation_function
from mlpfusion.spec import ACTIVATIONS


def _next(activation):
    return ACTIVATIONS[(ACTIVATIONS.index(activation) + 1) % len(ACTIVATIONS)]


def right(gate, up, activation):
    return activation_function(activation)(gate) * up


def another(gate, up, activation):
    """The activation that is listed next."""
    return right(gate, up, _next(activation))


class _SlopeOfAnother(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, activation):
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return right(gate, up, activation)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        with torch.enable_grad():
            leaf = gate.detach().requires_grad_()
            (dgate,) = torch.autograd.grad(another(leaf, up.detach(), ctx.activation), leaf, dy)
        return dgate, dy * activation_function(ctx.activation)(gate), None


def slope_of_another(gate, up, activation):
    """Right values with the derivative of the activation that is listed next."""
    return _SlopeOfAnother.apply(gate, up, activation)
