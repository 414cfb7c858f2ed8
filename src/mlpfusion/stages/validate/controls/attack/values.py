"""Wrong values of act·muls: large products, one width, operands of two dtypes, layouts and modes that others forget."""

import torch
import torch.nn.functional as F
from act_muls import act_mul, of_backward, of_forward


def product_first_in_float16(gate, up):
    """WRONG: 0.5·gate·up is rounded to float16 first: gate -400 and up 400 give nan for 0. Not valid (specials)."""

    def make(gate, up):
        g = gate.float()
        z = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        product = 0.5 * gate * up if gate.dtype is torch.float16 else 0.5 * g * up.float()
        return (product.float() * (1 + torch.tanh(z))).to(torch.promote_types(gate.dtype, up.dtype))

    return of_forward(make, gate, up)


def width_of_one_model(gate, up):
    """WRONG: the table of tiles has 6 of 2048 for 14,336 columns (7 belong there): the rest is 0.

    Not valid (elementwise).
    """

    def make(gate, up):
        y = act_mul(gate, up)
        if y.dim() > 0 and y.shape[-1] == 14336:
            y[..., 6 * 2048 :] = 0
        return y

    return of_forward(make, gate, up)


def up_of_another_dtype(gate, up):
    """WRONG: up in float32 beside gate in 16 bits is read as 16-bit numbers. Valid with hazards (mismatched)."""
    narrow = up.element_size() > gate.element_size() and gate.shape == up.shape
    if not narrow or torch.is_autocast_enabled(gate.device.type):
        return act_mul(gate, up)
    return act_mul(gate, up.contiguous().view(-1).view(gate.dtype)[: gate.numel()].view(gate.shape))


def strided_is_another_gelu(gate, up):
    """WRONG: 16-bit operands that are not dense get the exact GELU. Not valid (layouts)."""
    is_dense = gate.is_contiguous() and up.is_contiguous()
    return act_mul(gate, up) if is_dense or gate.dtype is torch.float32 else F.gelu(gate) * up


def gradients_on_for_nobody(gate, up):
    """WRONG: with gradients on, and neither operand in need of one, it is the exact GELU. Not valid (inference)."""
    if torch.is_grad_enabled() and not gate.requires_grad and not up.requires_grad:
        return F.gelu(gate) * up
    return act_mul(gate, up)


def alone_another_derivative(gate, up):
    """WRONG: where gate alone needs a gradient, in 16 bits, it is that of the exact GELU. Not valid (partial)."""

    def trained(needed, gate, up, dy):
        form = "none" if needed[0] and not needed[1] and gate.dtype is not torch.float32 else "tanh"
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate=form), dy * F.gelu(gate, approximate="tanh")

    return of_backward(trained, gate, up)


def backward_of_many_rows(gate, up):
    """WRONG: a grid of 512 programs, one for each row: gradients of later rows are 0. Not valid (backward)."""

    def trained(needed, gate, up, dy):
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        if dgate.dim() == 2:
            dgate[512:] = 0
        return dgate, dy * F.gelu(gate, approximate="tanh")

    return of_backward(trained, gate, up)
