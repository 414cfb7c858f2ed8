"""Text in tables: cells, Markdown, CSV, names of kernels, and what steers no terminal."""

from __future__ import annotations

import pytest
from support.profiles_made import GELU

from mlpfusion.report.grid import printable
from mlpfusion.report.profile.table import shorten


def test_printable_leaves_lines_alone() -> None:
    assert printable("a\x1b[0m\tb\r\n\u202eµ → –") == "a�[0m�b�\n�µ → –"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_geglu_tanh_forward_kernel", "_geglu_tanh_forward_kernel"),
        (GELU, "at::native::vectorized_elementwise_kernel<…>"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 5>(float*)", "softmax_warp_forward<…>"),
        ("Memset (Device)", "Memset (Device)"),
        ("a\n b", "a b"),
        ("x" * 200, "x" * 32 + "…" + "x" * 31),
    ],
)
def test_kernel_names_fit_a_line(name: str, short: str) -> None:
    assert shorten(name) == short
