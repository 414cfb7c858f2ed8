"""report.trace.kernels: the table of an incomplete trace, of many kernels, of one call."""

from __future__ import annotations

import msgspec
import pytest
from support.paths import DATA

from mlpfusion.records.trace import Reading, Spread
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def eager() -> Reading:
    return read(DATA / "h200_eager.json.gz")


def page(reading: Reading, fmt: str = "text") -> str:
    return render([(reading, ())], fmt)


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
    assert [line.split()[0] for line in text.split("in all, of medians\n")[1].splitlines()[1:6]] == ["40"] + [
        "20"
    ] * 3 + ["40"]
    assert page(replace(eager, analysis=many), "csv").count("\n") == 141


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
