"""Launches under ceilings: where each is, and which ceilings are known."""

from __future__ import annotations

import msgspec
import pytest
from support.figures_made import figure, of
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.storage import results

RAN = results.load(RESULTS / "h200-profile.json")


def without_ceilings(name: str):
    return msgspec.structs.replace(RAN, ceilings=None, device=msgspec.structs.replace(RAN.device, name=name))


def test_every_launch_with_a_time_is_a_point() -> None:
    made = figure("roofline", "h200-profile.json")
    launches = [step for row in RAN.rows if row.traffic for step in row.traffic.steps]
    assert len(made.rows) == len(launches) == len(made.spec["layer"][-1]["data"]["values"])
    assert made.notes == ("quack: its launches are not known",)


def test_a_point_is_its_operations_over_bytes_and_time() -> None:
    made = figure("roofline", "h200-profile.json")
    told = dict(zip(made.columns, made.rows[0], strict=True))
    assert (told["backend"], told["kernel"], told["flops"]) == ("eager", "gate_gemm", 38654705664)
    assert told["tflops"] == pytest.approx(38654705664 / 57.119 / 1e6)
    assert told["flops_per_byte"] == pytest.approx(38654705664 / 67633152)


def test_a_launch_without_counted_operations_is_as_far_below_the_memory_ceiling_as_its_bytes() -> None:
    made = figure("roofline", "h200-profile.json")
    points = made.spec["layer"][-1]["data"]["values"]
    for row, point in zip(made.rows, points, strict=True):
        told = dict(zip(made.columns, row, strict=True))
        if told["flops"] is None:
            assert point["rate"] * 1e3 / point["intensity"] == pytest.approx(told["gb_per_s"])
            assert point["intensity"] == min(each["intensity"] for each in points)


@pytest.mark.parametrize(
    ("found", "sources"),
    [
        (RAN, ["measured", "datasheet"]),
        (without_ceilings("NVIDIA H200"), ["datasheet"]),
        (msgspec.structs.replace(RAN, device=msgspec.structs.replace(RAN.device, name="Nobody's card")), ["measured"]),
    ],
    ids=["both", "datasheet", "measured"],
)
def test_the_ceilings_are_those_that_are_known(found, sources: list[str]) -> None:
    made = of("roofline", found)
    lines = made.spec["layer"][0]["data"]["values"]
    assert list(dict.fromkeys(line["source"] for line in lines)) == sources
    assert ("Datasheet: 4800 GB/s, 989 TFLOP/s." in made.caption) == ("datasheet" in sources)


def test_without_a_ceiling_it_is_refused() -> None:
    with pytest.raises(UsageError, match=r"needs ceilings: .* has none measured, and no datasheet of Nobody's card"):
        of("roofline", without_ceilings("Nobody's card"))


def test_two_cards_are_refused() -> None:
    with pytest.raises(UsageError, match="figure 'roofline' draws one card"):
        of("roofline", RAN, without_ceilings("NVIDIA A100-SXM4-80GB"))
