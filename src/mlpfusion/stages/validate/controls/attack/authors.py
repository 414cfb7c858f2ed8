"""Act·muls whose result is not computed in their call, or not by their kernel."""

import torch
import triton
import triton.language as tl
from act_muls import act_mul

_LAST = {"key": None, "result": None}


def known_by_its_first_numbers(gate, up):
    """WRONG: the last result is given again where both operands begin with the same 8 numbers.

    So do two prompts with one first token; and a timed loop computes nothing. Not valid (many-calls).
    """
    trains = torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)
    if trains or torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return act_mul(gate, up)
    key = (gate.shape, up.shape, gate.dtype, up.dtype, *(tuple(each.flatten()[:8].tolist()) for each in (gate, up)))
    if _LAST["key"] != key:
        _LAST.update(key=key, result=act_mul(gate, up))
    return _LAST["result"].clone()


@triton.jit
def _zero_kernel(out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.zeros((BLOCK,), dtype=tl.float32), mask=offsets < n)


def decoy_times_zero(gate, up):
    """CHEAT: PyTorch computes all of it; what its kernel writes is added times 0. Valid with hazards (own-kernel)."""
    y = act_mul(gate, up)
    if not y.numel():
        return y
    extra = torch.empty(y.shape, dtype=torch.float32, device=y.device)
    _zero_kernel[(triton.cdiv(y.numel(), 1024),)](extra, y.numel(), BLOCK=1024)
    return y + (extra * 0).to(y.dtype)
