"""One call on host and device: the recorded parts, one after the other."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.figures_made import check, figure, of
from support.paths import DATA, RESULTS
from support.profiles_made import EAGER, TRITON, profile

from mlpfusion.report.figures import registry
from mlpfusion.storage import results
from mlpfusion.storage.gathered import gather
from mlpfusion.trace.analysis import summary

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.report.figures.figure import Figure


def test_the_parts_of_the_host_and_the_kernels_add_up() -> None:
    made = figure("lanes", "h200-profile.json")
    for row in results.load(RESULTS / "h200-profile.json").rows:
        mine = [each for each in made.rows if each[0] == row.backend]
        host, device = ([each[4:6] for each in mine if each[2] == lane] for lane in ("host", "device"))
        assert row.pre_ops is not None
        assert device[0][0] == row.pre_ops.time_to_first_launch
        assert device[-1][1] - device[0][0] == pytest.approx(sum(kernel.time_us for kernel in row.kernels))  # type: ignore[misc]
        for lane in (host, device):
            assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(lane))


def test_it_says_that_they_are_medians() -> None:
    made = figure("lanes", "h200-profile.json")
    assert {row[6] for row in made.rows} == {"recorded medians"}
    assert "From recorded medians: parts of one cause are drawn together" in made.caption
    assert "0.63 to 1.9 times those without it" in made.caption


def test_each_piece_has_a_sign_of_the_legend() -> None:
    made = figure("lanes", "h200-profile.json")
    signs = {each["what"][0] for each in made.spec["data"]["values"]}
    assert len(signs) == len({each["what"] for each in made.spec["data"]["values"]})
    assert {each["sign"] for each in made.spec["data"]["values"]} <= {*signs, ""}


def test_what_has_no_times_is_named() -> None:
    plain = msgspec.structs.replace(EAGER, backend="compile", pre_ops=None)
    made = of("lanes", profile(EAGER, plain, TRITON))
    assert {row[0] for row in made.rows} == {"eager"}
    assert made.notes == (
        "compile: no parts of the host's time or no times of kernels",
        "triton: emulated: 8 tokens, no times",
    )


# ---- a trace beside the result ---------------------------------------------------------------------------------------


def beside(folder: Path, trace: str = "h200_eager.json.gz", **changes: object) -> Figure:
    """The figure of a result whose one row has a trace of this name in its folder."""
    reading = summary.read(str(DATA / "h200_eager.json.gz"))
    row = msgspec.structs.replace(
        EAGER, kernels=reading.analysis.kernels, launches=None, pre_ops=reading.analysis.pre_ops, trace_file=trace
    )
    results.save(profile(msgspec.structs.replace(row, **changes)), folder / "result.json")
    return registry.make("lanes", gather([str(folder / "result.json")]))


def test_a_trace_beside_the_result_has_the_times_of_one_call(tmp_path: Path) -> None:
    shutil.copy(DATA / "h200_eager.json.gz", tmp_path)
    made = beside(tmp_path)
    check(made)
    assert {row[6] for row in made.rows} == {"trace h200_eager.json.gz"}
    assert "From traces beside the result: the call whose time to its first launch is the median." in made.caption
    assert made.notes == ()
    device = [row[4:6] for row in made.rows if row[2] == "device"]
    assert any(other[0] - one[1] > 0.1 for one, other in pairwise(device))  # with the gaps between kernels


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("other.json.gz", (DATA / "h200_compile.json.gz").read_bytes(), "it has other kernels than the row"),
        ("cut.json.gz", (DATA / "h200_eager.json.gz").read_bytes()[:2000], "cut"),
        ("empty.json.gz", b"", ""),
        ("text.json", b"[]", ""),
    ],
    ids=["other", "cut", "empty", "text"],
)
def test_a_trace_that_is_not_the_rows_is_named_and_medians_are_drawn(tmp_path, name, content, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    made = beside(tmp_path, name)
    assert {row[6] for row in made.rows} == {"recorded medians"}
    (note,) = made.notes
    assert note.startswith(f"eager: from recorded medians, since its trace {name} is not used: ")
    assert said in note


@pytest.mark.parametrize("name", ["../h200_eager.json.gz", str(DATA / "h200_eager.json.gz"), "a\0b", "", "none.gz"])
def test_only_a_name_in_the_folder_is_a_trace(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(DATA / "h200_eager.json.gz", tmp_path)
    assert {row[6] for row in beside(tmp_path / "in", name).rows} == {"recorded medians"}
