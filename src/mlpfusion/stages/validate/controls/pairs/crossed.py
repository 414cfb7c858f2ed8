"""Targets that are wrong where two sides of a call meet, each of which alone is right."""

import threading

import torch
import torch.nn.functional as F


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def rows_shared_with_a_thread(gate, up):
    """WRONG: packed halves are taken row by row from a workspace of the main thread's. Told by crossed."""
    if gate.shape != up.shape:
        raise ValueError("gate and up must have one shape")
    y = _act(gate) * up
    if threading.current_thread() is threading.main_thread() or gate.is_contiguous():
        return y
    return torch.cat((y[..., :-1], torch.zeros_like(y[..., -1:])), dim=-1)


def workspace_by_default(x, wg, wu, wd):
    """WRONG: a workspace for one row has the default dtype, and is as long as float32 would need. Told by crossed."""
    hidden = _act(x @ wg.T) * (x @ wu.T)
    if x.shape[:-1].numel() == 1:
        workspace = torch.empty(hidden.shape[-1], device=x.device)
        held = workspace.numel() * workspace.element_size() // 4
        hidden = torch.cat((hidden[..., :held], 0 * hidden[..., held:]), dim=-1)
    return hidden @ wd.T
