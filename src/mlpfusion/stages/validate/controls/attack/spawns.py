"""An act·mul whose file changes how the processes of the whole program are started."""

import multiprocessing

import torch.nn.functional as F

multiprocessing.set_start_method("spawn", force=True)  # CUDA cannot be used in a forked process


def spawns(gate, up):
    """HAZARD: a DataLoader of what cannot be pickled fails from its import on. Valid with hazards (state)."""
    return F.gelu(gate, approximate="tanh") * up
