"""Runs Triton kernels in Triton's interpreter unless a GPU is asked for, and one thread per process."""

from __future__ import annotations

import os

if os.environ.get("MLPFUSION_GPU_TESTS") != "1":
    # Read by triton when a kernel is defined, so it must be set before any package with kernels is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # Read by torch when it is imported, here and in the processes that tests start. The cores are shared by the
    # processes of pytest-xdist: threads of one that wait for each other spin while another could run.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
