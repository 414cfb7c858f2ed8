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
