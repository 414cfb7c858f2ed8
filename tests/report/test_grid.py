"""Text in tables: cells, Markdown, CSV, names of kernels, and what steers no terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles_made import GELU

from mlpfusion.report.grid import csv_text, fitted, folded, tabulated, titled
from mlpfusion.report.profile.table import shorten
from mlpfusion.storage.letters import printable


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


@given(st.lists(st.lists(st.text(max_size=150), min_size=4, max_size=4), min_size=1, max_size=4))
def test_a_table_fits_whatever_is_in_it(cells: list[list[str]]) -> None:
    cells = [[" ".join(printable(cell).split()) for cell in line] for line in cells]
    heads, right = ["name", "role", "what it is", "µs"], [False] * 4
    made = fitted(cells, heads, right)
    assert max(map(len, tabulated(made, heads, right, github=False).splitlines())) <= 200
    lengths = [
        sum(max(map(len, (head + "  ", *column))) for head, column in zip(heads, zip(*cells, strict=True), strict=True))
    ]
    if lengths[0] <= 200 - 6:
        assert made == cells


@given(st.text(max_size=2000), st.integers(0, 20))
def test_a_folded_line_loses_no_word(text: str, indent: int) -> None:
    line = " ".join(printable(text).split())
    lines = folded(line, indent).split("\n")
    assert max(map(len, lines)) <= 200
    assert "".join("".join(lines).split()) == "".join(line.split())
    assert all(each.startswith(" " * indent) for each in lines[1:])


def test_csv_steers_no_terminal() -> None:
    assert csv_text([{"a\x1b[2J": "b\u202e", "c": "d\x9b"}]) == "a�[2J,c\nb�,d�\n"


def test_cells_and_heads_are_text() -> None:
    page = tabulated([["a_ *b*\n@c"]], ["_d_"], [False], github=True)
    assert page.splitlines()[0].strip("| ") == "\\_d\\_"
    assert page.splitlines()[2].strip("| ") == "a\\_ \\*b\\* @<!-- -->c"
    assert "**a_**" in tabulated([["**a_**"]], ["_d_"], [False], github=True, is_markdown=True)


def test_a_title_is_text_as_well() -> None:
    assert titled("a <b>", "table", github=True) == "**a &lt;b>**\n\ntable"
