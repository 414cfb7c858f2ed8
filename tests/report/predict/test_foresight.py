"""The predicted choice for a card that is not here, in four formats: never as if it were measured."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from msgspec.structs import replace

from mlpfusion.device import Peaks
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.records.prediction import Efficiency, Foreseen, ForeseenPoint, Foresight
from mlpfusion.report.predict.foresight import render
from mlpfusion.spec import MLPSpec

SPEC = MLPSpec(hidden_size=768, intermediate_size=3072)
LEAST = Foreseen(
    backend="fused",
    verdict="least",
    predicted_us=100.0,
    ratio=1.0,
    low_us=95.0,
    high_us=106.0,
    sources=("measured table", "scaled"),
)
NEAR = Foreseen(
    backend="triton",
    verdict="tied",
    predicted_us=102.0,
    ratio=1.02,
    low_us=96.0,
    high_us=110.0,
    sources=("scaled",),
    extrapolated=True,
)
FAR = Foreseen(backend="eager", verdict="slower", predicted_us=200.0, ratio=2.0)
NONE = Foreseen(backend="odd", verdict="not predicted", reason="it has no\nledger")
POINT = ForeseenPoint(
    mode="inference",
    tokens=16,
    measured_on="NVIDIA H200",
    efficiency=Efficiency(compute=0.7, memory=0.8, n=9, source="NVIDIA H200"),
    least="fused",
    backends=(FAR, NONE, LEAST, NEAR),
)
FOUND = Foresight(
    schema=1,
    kind="prediction",
    model=known.of_sizes(SPEC),
    tp=1,
    spec=SPEC,
    card="NVIDIA Z1",
    peaks=Peaks(flops_16bit=1e15, bandwidth=3e12, source="its datasheet"),
    points=(POINT,),
)


def test_the_first_line_says_that_nothing_was_measured() -> None:
    assert render(FOUND).startswith("predicted, not measured, for NVIDIA Z1 (1000 TFLOP/s, 3000 GB/s; its datasheet)\n")
    assert render(FOUND, "github").startswith("**predicted, not measured, for NVIDIA Z1 (")


def test_the_least_is_named_with_what_is_tied_and_what_was_assumed() -> None:
    line = next(line for line in render(FOUND).splitlines() if line.startswith("inference"))
    assert line.split() == ["inference", "16", "fused", "100", "triton", "70%", "80%", "NVIDIA", "H200"]


def test_every_backend_is_listed_the_fastest_first_and_one_without_a_time_with_its_reason_on_one_line() -> None:
    text = render(FOUND)
    lines = [line.split() for line in text[text.index("Every backend") :].splitlines() if line.startswith("inference")]
    assert [line[2] for line in lines] == ["fused", "triton", "eager", "odd"]
    assert lines[0][3:] == ["least", "100", "95.0–106", "1.00x", *["measured", "table", "+", "scaled", "–"]]
    assert lines[1][3:] == ["tied", "102", "96.0–110", "0.980x", "scaled,", "extrapolated", "–"]
    assert lines[2][3:] == ["slower", "200", "–", "0.500x", "–", "–"]
    assert lines[3][-4:] == ["it", "has", "no", "ledger"]


def test_where_nothing_could_be_predicted_nothing_is_the_least() -> None:
    text = render(replace(FOUND, points=(replace(POINT, efficiency=None, least=None, backends=(NONE,)),)))
    line = next(line for line in text.splitlines() if line.startswith("inference"))
    assert line.split() == ["inference", "16", *"–" * 6]


@pytest.mark.parametrize(("tp", "said"), [(1, "intermediate_size 3072, "), (8, "3072, a share of one in 8 cards, ")])
def test_a_share_of_an_mlp_is_said(tp: int, said: str) -> None:
    assert said in render(replace(FOUND, tp=tp))


def test_what_is_to_be_known_of_the_model_ends_the_page() -> None:
    noted = replace(FOUND, model=replace(FOUND.model, notes=("a | b",)))
    assert render(noted).endswith("\n\nnote: a | b\n")
    assert render(noted, "github").endswith("\n\n- a \\| b\n")


def test_csv_and_json_say_of_every_line_what_it_is() -> None:
    lines = list(csv.DictReader(io.StringIO(render(FOUND, "csv"))))
    assert {(line["kind"], line["card"], line["tokens"]) for line in lines} == {("prediction", "NVIDIA Z1", "16")}
    assert {line["backend"]: line["verdict"] for line in lines} == {
        each.backend: each.verdict for each in POINT.backends
    }
    assert msgspec.json.decode(render(FOUND, "json"), type=Foresight) == FOUND
    with pytest.raises(UsageError, match="unknown format 'html'"):
        render(FOUND, "html")
