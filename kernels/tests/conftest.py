"""Runs the kernels in Triton's interpreter where there is no GPU."""

import os

import torch

# Read by triton when a kernel is defined, so it must be set before the package is imported.
if not torch.cuda.is_available() and not torch.xpu.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
