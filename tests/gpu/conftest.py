"""These tests run where they are asked for, with MLPFUSION_GPU_TESTS=1, and then fail without a GPU."""

from __future__ import annotations

import os

# Elsewhere Triton's interpreter takes the place of the kernels that these tests are about.
if os.environ.get("MLPFUSION_GPU_TESTS") != "1":
    collect_ignore_glob = ["test_*.py"]
