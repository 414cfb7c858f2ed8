"""report.trace.kernels: the table of an incomplete trace, of many kernels, of one call."""

from __future__ import annotations

import msgspec
import pytest
from support import pages
from support.pages import page

from mlpfusion.records.trace import Reading, Spread
from mlpfusion.report.trace.page import render

replace = msgspec.structs.replace
eager = pages.eager  # a fixture


def test_an_incomplete_trace_shows_no_averages(eager: Reading) -> None:
    text = page(replace(eager, incomplete="2 launches inside calls have no device event"))
    assert "incomplete  2 launches inside calls have no device event; no averages are shown" in text
    assert "234.1" not in text
    kernels = text.split("Kernels\n")[1].split("\n\n")[0].splitlines()[2:]
    assert len(kernels) == 7
    assert all(line.endswith(" –") for line in kernels)
    for line in page(replace(eager, incomplete="so"), "csv").splitlines()[1:]:
        assert ",,,,,,so" in line.replace('"', "")


def test_many_kernels_are_shown_by_name(eager: Reading) -> None:
    many = replace(eager.analysis, kernels=eager.analysis.kernels * 20)
    text = page(replace(eager, analysis=many, kernel_spread=eager.kernel_spread * 20))
    assert "Kernels by name (140 a call)" in text
    rows = [line.split() for line in text.split("share\n")[1].split("\n\n")[0].splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        ["20", "gate_gemm"],
        ["20", "up_gemm"],
        ["20", "down_gemm"],
        ["20", "mul"],
        ["20", "activation"],
        ["40", "memset"],
    ]
    whole = 20 * sum(kernel.time_us or 0 for kernel in eager.analysis.kernels)
    assert sum(float(row[-2]) for row in rows) == pytest.approx(whole, rel=0.01)
    assert sum(float(row[-1].removesuffix("%")) for row in rows) == pytest.approx(100, abs=0.5)
    assert page(replace(eager, analysis=many), "csv").count("\n") == 141


@pytest.mark.parametrize("kinds", [39, 40, 41, 100])
def test_the_first_40_rows_and_what_is_left_out(eager: Reading, kinds: int) -> None:
    kernels = []
    for number in range(kinds):
        op = f"my::op{number}"
        times = {"time_us": 1000.0 - number, "p20_us": None, "p80_us": None}
        kernels += [replace(eager.analysis.kernels[1], name=f"k{number}_kernel", op=op, **times)] * 2
    reading = replace(eager, analysis=replace(eager.analysis, kernels=tuple(kernels)), kernel_spread=(), modules=())
    text = page(reading)
    rows = [line for line in text.splitlines() if "_kernel " in line]
    assert len(rows) == min(kinds, 40)
    left = [line for line in text.splitlines() if "more rows; --all shows them" in line]
    assert len(left) == (kinds > 40)
    if left:
        rest = [2 * (1000.0 - number) for number in range(40, kinds)]
        whole = sum(2 * (1000.0 - number) for number in range(kinds))
        words = left[0].split()
        assert words[:2] == [str(2 * len(rest)), str(len(rest))]
        assert float(words[-2]) == pytest.approx(sum(rest), rel=0.01)
        assert float(words[-1].removesuffix("%")) == pytest.approx(100 * sum(rest) / whole, abs=0.1)
    everything = render([(reading, ())], everything=True)
    assert sum("_kernel " in line for line in everything.splitlines()) == kinds
    assert "more rows" not in everything


def test_a_time_of_one_call_is_marked(eager: Reading) -> None:
    one = Spread(n=1, median=7.0, low=7.0, high=7.0)
    spreads = (one,) * len(eager.kernel_spread)
    text = page(replace(eager, host_spread=one, device_spread=one, kernel_spread=spreads))
    assert "host        7.00 µs in one call\n" in text
    assert "device      7.00 µs in one call in which its own work ran\n" in text
    kernels = text.split("Kernels\n")[1].split("\n\n")[0].splitlines()[2:]
    assert all(line.endswith("  7.00 (one call)") for line in kernels)


def test_a_time_without_its_spread_is_not_shown(eager: Reading) -> None:
    bare = tuple(replace(kernel, p20_us=None, p80_us=None) for kernel in eager.analysis.kernels)
    text = page(replace(eager, kernel_spread=(), analysis=replace(eager.analysis, kernels=bare)))
    kernels = text.split("Kernels\n")[1].split("\n\n")[0].splitlines()[2:]
    assert all(line.endswith(" –") for line in kernels)


def test_the_modules_that_launch_are_shown_where_the_trace_has_them(eager: Reading) -> None:
    chains = tuple(("Net_0", "MLP_3", f"Linear_{number}") for number in range(7))
    text = page(replace(eager, modules=chains))
    rows = text.split("Kernels\n")[1].split("\n\n")[0].splitlines()
    assert " module " in rows[0]
    assert all(f"MLP_3/Linear_{number} " in row for number, row in enumerate(rows[2:]))
    assert "Net_0/MLP_3/Linear_6" in page(replace(eager, modules=chains), "csv")
    assert " module " not in page(eager)


def test_many_kernels_have_the_classes_of_their_modules(eager: Reading) -> None:
    kernels, spreads = eager.analysis.kernels * 20, eager.kernel_spread * 20
    chains = tuple((f"MLP_{number // 7}", f"Linear_{number % 7}") for number in range(140))
    many = replace(eager, analysis=replace(eager.analysis, kernels=kernels), kernel_spread=spreads)
    text = page(replace(many, modules=(*chains[:-1], ("Head_0",))))
    rows = text.split("share\n")[1].split("\n\n")[0].splitlines()[1:]
    assert sum("MLP/Linear and 1 more" in row for row in rows) == 1
    assert sum("MLP/Linear " in row for row in rows) == len(rows)
