"""Kernels that are wrong in one 16-bit dtype alone, or inside torch.compile."""

import torch
import torch.nn.functional as F


def _act_mul(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def fp16_gate_zeroed(gate, up):
    y = _act_mul(gate, up)
    if gate.dtype is torch.float16:
        with torch.no_grad():
            gate.zero_()
    return y


_BUFFERS = {}


def fp16_in_one_buffer(gate, up):
    y = _act_mul(gate, up)
    if gate.dtype is not torch.float16 or y.requires_grad:
        return y
    return _BUFFERS.setdefault((tuple(y.shape), y.device), torch.empty_like(y)).copy_(y)


def fp16_noisy(gate, up):
    y = _act_mul(gate, up)
    if gate.dtype is not torch.float16:
        return y
    return torch.where(torch.rand(y.shape, device=y.device) < 0.5, y, y * (1 + 2**-10))


def fp16_read_as_dense(gate, up):
    if up.dtype is torch.float16 and up.dim() == 2 and up.stride(0) > up.shape[1] and up.stride(1) == 1:
        up = torch.as_strided(up, up.shape, (up.shape[1], 1))
    return _act_mul(gate, up)


def fp16_wrong_under_inference_mode(gate, up):
    is_wrong = gate.dtype is torch.float16 and torch.is_inference_mode_enabled()
    return _act_mul(gate, up) * (2 if is_wrong else 1)


def narrow_wrong_when_compiled(gate, up):
    is_wrong = gate.dtype is not torch.float32 and torch.compiler.is_compiling()
    return _act_mul(gate, up) * (1.5 if is_wrong else 1)


def fp16_wrong_when_compiled(gate, up):
    is_wrong = gate.dtype is torch.float16 and torch.compiler.is_compiling()
    return _act_mul(gate, up) * (1.5 if is_wrong else 1)


def wrong_when_compiled_for_inference(gate, up):
    is_wrong = torch.compiler.is_compiling() and not torch.is_grad_enabled()
    return _act_mul(gate, up) * (1.5 if is_wrong else 1)


def wrong_when_compiled_for_other_shapes(gate, up):
    is_wrong = torch.compiler.is_compiling() and gate.shape[-1] != 256
    return _act_mul(gate, up) * (1.5 if is_wrong else 1)


def _wrong_where(gate, up, is_wrong):
    return _act_mul(gate, up) * (1.5 if torch.compiler.is_compiling() and is_wrong else 1)


def wrong_when_compiled_in_three_dimensions(gate, up):
    return _wrong_where(gate, up, gate.dim() == 3)


def wrong_when_compiled_for_one_row(gate, up):
    return _wrong_where(gate, up, gate.dim() == 2 and gate.shape[0] == 1 and torch.is_grad_enabled())


def wrong_when_compiled_and_transposed(gate, up):
    return _wrong_where(gate, up, gate.dim() == 2 and gate.stride(0) == 1 and gate.stride(1) != 1)


def wrong_when_compiled_and_packed(gate, up):
    return _wrong_where(gate, up, gate.dim() == 2 and gate.stride(1) == 1 and gate.stride(0) > gate.shape[1])


def wrong_when_compiled_for_inference_of_other_shapes(gate, up):
    return _wrong_where(gate, up, gate.shape[-1] != 256 and not torch.is_grad_enabled())


def mlp_wrong_when_compiled_in_two_dimensions(x, wg, wu, wd):
    hidden = _wrong_where(F.linear(x, wg), F.linear(x, wu), x.dim() == 2)
    return F.linear(hidden, wd)


@torch.library.custom_op("mlpfusion_controls::traced", mutates_args=())
def _traced(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _act_mul(gate, up)


@_traced.register_fake
def _(gate, up):
    return torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)


def _gradients(ctx, dy):
    if torch.is_grad_enabled():
        raise NotImplementedError("no double backward")
    gate, up = ctx.saved_tensors
    return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * F.gelu(gate, approximate="tanh")


_traced.register_autograd(_gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def by_another_way_when_compiled(gate, up):
    """Right: an operator while it is compiled, so that nothing of it is traced."""
    return _traced(gate.contiguous(), up.contiguous()) if torch.compiler.is_compiling() else _act_mul(gate, up)
