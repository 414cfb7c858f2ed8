"""Runs Triton kernels in Triton's interpreter unless a GPU is asked for."""

from __future__ import annotations

import os

# Read by triton when a kernel is defined, so it must be set before any package with kernels is imported.
if os.environ.get("MLPFUSION_GPU_TESTS") != "1":
    os.environ.setdefault("TRITON_INTERPRET", "1")
