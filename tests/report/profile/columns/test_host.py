"""The host's side of a call: API calls, its time, what bounds the call, and the parts before the first launch."""

from __future__ import annotations

import msgspec
from support.column_cells import data, texts
from support.profiles_made import COMPILE, EAGER, LIGER

from mlpfusion.report.profile.columns.host import of_host


def test_the_columns_of_a_row_that_was_raced() -> None:
    row = msgspec.structs.replace(COMPILE, clocks=EAGER.clocks)
    assert texts(of_host(), row) == {
        "kernel_us": "238.0 [237.3–238.8]",
        "launches": "4",
        "host_us": "104.8 [103.9–106.1]",
        "bound": "gpu 2.31x",
        "first_launch_us": "80.5",
        "dynamo_us": "22.5",
        "compiled_graph_us": "9.10",
    }
    found = data(of_host(), row)
    assert (found["launches"], found["launch_apis"]) == (4, "cuLaunchKernelEx=3 cudaLaunchKernel=1")
    assert (found["host_us"], found["host_us_n"], found["bound_margin"]) == (104.8, 60, 2.314)


def test_a_time_without_percentiles_is_not_shown() -> None:
    assert EAGER.bound is not None
    bound = msgspec.structs.replace(EAGER.bound, n=5, host_p20_us=None, host_p80_us=None)
    found = texts(of_host(), msgspec.structs.replace(EAGER, bound=bound))
    assert (found["host_us"], found["bound"]) == ("–", "–")


def test_a_row_without_figures_has_none() -> None:
    assert set(texts(of_host(), LIGER).values()) == {"–"}
    assert set(data(of_host(), LIGER).values()) == {None}
