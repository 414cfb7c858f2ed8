"""An act·mul whose file changes how PyTorch's compiler behaves for the whole program."""

import torch
import torch._dynamo
import torch.nn.functional as F

torch._dynamo.config.suppress_errors = True


def errors_suppressed(gate, up):
    """HAZARD: its import has torch.compile fall back to eager for good where it fails. Valid with hazards (state)."""
    return F.gelu(gate, approximate="tanh") * up
