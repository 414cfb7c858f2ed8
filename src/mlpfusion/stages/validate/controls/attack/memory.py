"""Act·muls that write, keep or hand out memory that is not theirs alone; the last is right."""

import threading
import time

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from act_muls import act_mul, of_forward


def _trains(gate, up):
    return torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)


def gate_overwritten_when_large(gate, up):
    """WRONG: for inference, 32,768 elements or more are activated in gate's own memory. Not valid (inputs-kept)."""
    if _trains(gate, up) or gate.numel() < 32768 or gate.dtype != up.dtype or gate.shape != up.shape:
        return act_mul(gate, up)
    return torch.ops.aten.gelu_(gate, approximate="tanh") * up


_RING = {"key": None, "buffers": [], "next": 0}


def ring_of_buffers(gate, up):
    """WRONG: results for inference take turns in four buffers: the fifth call overwrites the first result.

    Not valid (results-kept).
    """
    is_plain = gate.shape == up.shape and gate.dtype == up.dtype
    if not is_plain or torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return act_mul(gate, up)
    key = gate.shape, gate.dtype, gate.device
    if _RING["key"] != key:
        _RING.update(key=key, buffers=[torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(4)])
    _RING["next"] = (_RING["next"] + 1) % 4
    return _RING["buffers"][_RING["next"]].copy_(act_mul(gate, up))


@triton.jit
def _clearing_kernel(gate, up, out, n, padded, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)
    zero = tl.zeros((BLOCK,), dtype=tl.float32)
    tl.store(gate + offsets, zero.to(gate.dtype.element_ty), mask=(offsets >= n) & (offsets < padded))


def clears_behind_gate(gate, up):
    """WRONG: what lies behind gate, up to a whole vector of 16, is set to 0. Not valid (guards)."""

    def make(gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        padded = triton.cdiv(n, 16) * 16
        if n:
            _clearing_kernel[(triton.cdiv(padded, 1024),)](gate, up, out, n, padded, BLOCK=1024)
        return out

    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return of_forward(make, gate, up)


_WORKSPACES = {}
_LAST = {}


def workspace_for_each_shape(gate, up):
    """HAZARD: a workspace for each shape is kept for good: memory grows with each new length of a sequence.

    Valid with hazards (growth).
    """
    if _trains(gate, up) or gate.shape != up.shape or gate.dtype != up.dtype or torch.compiler.is_compiling():
        return act_mul(gate, up)
    key = gate.shape, gate.device
    if key not in _WORKSPACES:
        _WORKSPACES[key] = torch.zeros(gate.shape, dtype=torch.float32, device=gate.device)
    act = F.gelu(gate.float(), approximate="tanh")
    if torch.is_inference_mode_enabled():
        return (act * up.float()).to(gate.dtype)
    return (_WORKSPACES[key].copy_(act) * up.float()).to(gate.dtype)


def late_when_large(gate, up):
    """WRONG: a thread, which nobody waits for, writes results of more than 200,000 elements. Not valid (late)."""
    if _trains(gate, up) or gate.numel() <= 200_000 or gate.shape != up.shape or gate.dtype != up.dtype:
        return act_mul(gate, up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)

    def work():
        time.sleep(0.002)
        with torch.no_grad():
            out.copy_(act_mul(gate, up))

    threading.Thread(target=work).start()
    return out


def rows_padded_to_64(gate, up):
    """RIGHT: rows of the result are 64 columns apart, or a multiple, so that each begins aligned. Valid."""

    def make(gate, up):
        y = act_mul(gate, up)
        if y.dim() < 2 or not y.numel():
            return y
        padded = torch.empty((*y.shape[:-1], -(-y.shape[-1] // 64) * 64), dtype=y.dtype, device=y.device)
        padded[..., : y.shape[-1]] = y
        return padded[..., : y.shape[-1]]

    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return of_forward(make, gate, up)


def workspaces_for_16_shapes(gate, up):
    """RIGHT: a workspace for each of the last 16 shapes, so that memory grows up to a bound. Valid."""
    if _trains(gate, up) or gate.shape != up.shape or gate.dtype != up.dtype or torch.compiler.is_compiling():
        return act_mul(gate, up)
    key = gate.shape, gate.device
    if key not in _LAST and len(_LAST) == 16:
        del _LAST[next(iter(_LAST))]
    work = _LAST.setdefault(key, torch.zeros(gate.shape, dtype=torch.float32, device=gate.device))
    act = F.gelu(gate.float(), approximate="tanh")
    if torch.is_inference_mode_enabled():
        return (act * up.float()).to(gate.dtype)
    return (work.copy_(act) * up.float()).to(gate.dtype)
