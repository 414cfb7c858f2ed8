"""Weights that are parts of one buffer, at any distance from each other."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = (torch.float16, torch.float32)


@st.composite
def flat_weights(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """gate and up [3, 16] and down [16, 3] as views of one buffer, with offsets and strides that need not be even."""
    dtype = draw(st.sampled_from(DTYPES))
    memory = torch.arange(1024.0).to(dtype)
    places = st.one_of(st.integers(0, 20).map(lambda n: 16 * n), st.integers(0, 320))

    def view(rows: int, columns: int) -> Tensor:
        stride = draw(st.sampled_from([columns, columns + 8, columns + 16, columns + 1, columns + 4, 0]))
        step = draw(st.sampled_from([1, 1, 1, 1, 2]))
        return memory.as_strided((rows, columns), (stride, step), draw(places))

    return view(3, 16), view(3, 16), view(16, 3)
