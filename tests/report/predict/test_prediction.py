"""Predictions as text: the time of each launch and each call on a card that is not here."""

from __future__ import annotations

from mlpfusion.device import Peaks
from mlpfusion.records.prediction import Efficiency, MeasuredProduct, Predicted, PredictedStep
from mlpfusion.report.predict.prediction import render

STEPS = (
    PredictedStep(
        op="aten::mm",
        role="gate_gemm",
        predicted_us=40.0,
        bound="compute",
        low_us=38.0,
        high_us=42.0,
        source="measured table",
        nearest=(MeasuredProduct(m=8, n=16, k=32, us=39.0, source="a table"),),
        extrapolated=True,
    ),
    PredictedStep(
        op="void a::long<int>(float)",
        role="other",
        predicted_us=10.0,
        bound="memory",
        guard="no faster than the roofline",
    ),
)
LIGER = Predicted(
    backend="liger",
    card="NVIDIA Z1",
    peaks=Peaks(flops_16bit=312e12, bandwidth=2e12, source="its datasheet"),
    efficiency=Efficiency(compute=0.65, memory=0.9, n=12, source="NVIDIA H200"),
    steps=STEPS,
    low_us=45.0,
    high_us=56.0,
)
OTHER = Predicted(
    backend="odd", card=LIGER.card, peaks=LIGER.peaks, efficiency=LIGER.efficiency, steps=STEPS[:1], incomplete="mm"
)


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_it_says_what_it_is_and_what_it_assumes() -> None:
    first, second = render([LIGER], "text").splitlines()[:2]
    assert first == "predicted, not measured, for NVIDIA Z1 (312 TFLOP/s, 2000 GB/s; its datasheet)"
    assert second.endswith("else 65% of the matrix rate and 90% of the bandwidth, as 12 kernels reach on NVIDIA H200")
    assert "a note" in render([LIGER], "text", ["a note"]).splitlines()


def test_a_call_is_the_sum_of_its_launches_and_has_an_interval_where_one_is_known() -> None:
    shown = lines(render([LIGER, OTHER], "text"))
    assert ["liger", "50.0", "45.0–56.0"] in shown
    assert ["odd", "40.0", "–"] in shown


def test_launches_are_named_by_role_or_by_a_short_name_and_the_backend_stands_once() -> None:
    shown = lines(render([LIGER], "text"))
    assert [
        "liger",
        "1",
        "gate_gemm",
        "40.0",
        "38.0–42.0",
        "compute",
        *["measured", "table,", "1", "nearest,", "extrapolated"],
    ] in shown
    assert ["2", "a::long<…>", "10.0", "–", "memory", *["scaled;", "no", "faster", "than", "the", "roofline"]] in shown


def test_what_a_time_rests_on_is_shown_when_asked_for() -> None:
    assert ["liger", "1", "8", "x", "16", "x", "32", "39.0", "a", "table"] in lines(
        render([LIGER], "text", explain=True)
    )
    assert "Nearest" not in render([LIGER], "text")


def test_an_unknown_product_makes_it_a_lower_bound_and_says_so() -> None:
    sentence = "odd: at least this long; how many operations mm takes is not known"
    assert render([LIGER, OTHER], "text").splitlines()[-1] == sentence
    assert "at least" not in render([LIGER], "text")


def test_markdown_has_two_tables() -> None:
    text = render([LIGER], "github")
    assert "**Calls**\n\n| backend" in text
    assert "**Launches**\n\n| backend" in text
