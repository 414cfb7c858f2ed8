"""report.trace.pre_ops: the parts of the host's time before the first launch sum to what the title says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.paths import DATA

from mlpfusion.records.trace import PythonUse, Share
from mlpfusion.report.trace.pre_ops import pre_ops_table
from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading


@pytest.fixture(scope="module")
def compiled() -> Reading:
    return read(DATA / "h200_compile.json.gz")


def test_parts_sum_to_the_time_before_the_first_launch(compiled: Reading) -> None:
    found = pre_ops_table(compiled, github=False)
    assert found is not None
    title, table = found
    shown = sum(float(line.split()[-2]) for line in table.splitlines()[2:])
    whole = compiled.analysis.pre_ops.time_to_first_launch
    assert whole is not None
    assert shown == pytest.approx(whole, rel=0.01)
    assert "the parts of the median call" in title


def test_no_table_where_the_trace_does_not_say(compiled: Reading) -> None:
    assert pre_ops_table(msgspec.structs.replace(compiled, pre_ops_reason="no operators"), github=False) is None


def test_frames_of_python_are_below_what_they_explain(compiled: Reading) -> None:
    python = PythonUse(
        before_first=(Share(name="model.py(12): forward", us=40.0), Share(name="nn.Module: Net_0", us=5.0)),
        between_launches=(Share(name="nn.Module: Net_0", us=50.0),),
    )
    found = pre_ops_table(msgspec.structs.replace(compiled, python=python), github=False)
    assert found is not None
    rows = [line.split() for line in found[1].splitlines() if "- in Python" in line]
    assert rows == [
        ["-", "in", "Python", "nn.Module:", "Net_0", "5.00", "50.0"],
        ["-", "in", "Python", "model.py(12):", "forward", "40.0", "0"],
    ]
    without = pre_ops_table(compiled, github=False)
    assert without is not None
    assert "- in Python" not in without[1]
