"""Caches of Inductor's that are a test file's own, and C++ kernels that show in traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch._inductor import config, cpu_vec_isa
from torch._inductor.utils import fresh_cache

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def own_cache() -> Iterator[None]:
    torch.compiler.reset()
    # Which instructions there are, Inductor asks a compiler, for five seconds of a core, and notes in the cache it has.
    cpu_vec_isa.valid_vec_isa_list()
    with fresh_cache(), config.patch({"cpp.enable_kernel_profile": True}):
        yield
    torch.compiler.reset()
