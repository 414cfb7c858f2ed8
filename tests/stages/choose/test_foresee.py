"""What `mlpfusion choose` foresees for a card that is not here: from recorded and from made rows, never as a choice."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
from msgspec.structs import replace
from support.paths import RESULTS

from mlpfusion import device as devices
from mlpfusion.__main__ import main as run_main
from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.records.prediction import Foresight
from mlpfusion.records.profile import Accuracy, Profile, Row, Traffic
from mlpfusion.records.traffic import Step
from mlpfusion.report import foresight
from mlpfusion.stages.choose import foresee, predict
from mlpfusion.stages.profile import run
from mlpfusion.storage import results

A100 = "NVIDIA A100-SXM4-80GB"
RECORDED = json.loads((RESULTS / "h200-traffic.json").read_text("utf-8"))
H200 = Device(kind="cuda", name="NVIDIA H200", capability=(9, 0))
CPU = Device(kind="cpu", name="a CPU")


def recorded(name="article"):
    """A profile of the recorded run, as one of `choose`: its tokens in one batch."""
    found = msgspec.convert(RECORDED["profiles"][name], Profile)
    return replace(found, workload=replace(found.workload, batch=1, seq=found.workload.tokens))


def row(name, size=1.0, slow=1.0, **changes):
    """A product and an elementwise launch; both take `size` times what an H200 reaches, and `slow` times that here."""
    product = Step(
        op="mm", source="operator", read_bytes=1, write_bytes=1, flops=int(1e11 * size), time_us=200 * slow * size
    )
    stream = Step(op="mul", source="operator", read_bytes=int(3e8 * size), write_bytes=1, time_us=100 * slow * size)
    return Row(backend=name, status="ok", traffic=Traffic(minimum_bytes=1, steps=(product, stream)), **changes)


def profile(*found, device=H200):
    return replace(recorded(), rows=found, device=device)


def verdicts(point):
    return {each.backend: each.verdict for each in point.backends}


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "detect", lambda kind=None: CPU)


def saved(folder, found):
    folder.mkdir(exist_ok=True)
    results.save(found, folder / f"{found.workload.mode}-{found.workload.tokens}.json")


# ---- what is foreseen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["article", "large"])
def test_recorded_rows_are_predicted_as_predict_does_and_ranked(name):
    measured = recorded(name)
    (point,) = foresee.foresee_points([measured], A100)
    times = {each.backend: each for each in predict.predict(measured, A100)}
    assert point.least == min(times, key=lambda each: times[each].predicted_us) == "fused"
    for each in point.backends:
        if each.verdict == "not predicted":
            assert each.backend not in times
            assert each.reason.startswith(("Inductor's scheduler has", "the ledger has a launch"))
        else:
            own = times[each.backend]
            assert (each.predicted_us, each.error, each.worst_error) == (own.predicted_us, own.error, own.worst_error)
            assert each.ratio == pytest.approx(own.predicted_us / times["fused"].predicted_us)
    assert verdicts(point)["eager"] == "slower"
    assert point.measured_on == "NVIDIA H200"


def test_what_differs_by_less_than_the_rules_error_is_tied():
    rows = [row("good"), row("near", 1.04, slow=1.1), row("far", 1.5), row("other"), row("third", 1.2)]
    (point,) = foresee.foresee_points([profile(*rows)], A100)
    by_name = {each.backend: each for each in point.backends}
    assert by_name["near"].error == pytest.approx(1 - 1 / 1.1)
    assert verdicts(point) == {"good": "least", "near": "tied", "far": "slower", "other": "tied", "third": "slower"}
    assert by_name["far"].ratio == pytest.approx(1.5)


def test_without_an_error_nothing_is_decided():
    rows = [row("good"), row("far", 1.5)]
    (point,) = foresee.foresee_points([profile(*rows, device=replace(H200, name="an unknown card"))], A100)
    assert verdicts(point) == {"good": "least", "far": "undecided"}
    assert point.efficiency == predict.RECORDED


def test_what_is_wrong_or_has_no_ledger_is_listed_with_its_reason():
    off = Accuracy(max_error=99.0, rms_error=99.0, eager_max_error=1.0, eager_rms_error=1.0, rows=1, elements=16)
    rows = [
        row("good"),
        row("wrong", 0.1, accuracy=off),
        row("interpreted", 0.1, emulated=True),
        Row(backend="absent", status="unavailable", reason="not installed"),
        Row(backend="bare", status="ok"),
    ]
    (point,) = foresee.foresee_points([profile(*rows)], A100)
    reasons = {each.backend: each.reason for each in point.backends if each.verdict == "not predicted"}
    assert point.least == "good"
    assert reasons.keys() == {"wrong", "interpreted", "absent", "bare"}
    assert reasons["wrong"].startswith("wrong at inference, 8192 tokens")
    assert (reasons["absent"], reasons["bare"]) == ("not installed", "it has no ledger of its launches")


# ---- from which rows -------------------------------------------------------------------------------------------------


def test_whole_rows_of_another_gpu_are_enough(tmp_path, no_gpu):
    measured = recorded()
    saved(tmp_path, measured)
    asked = {"tokens": [8192], "out": tmp_path}
    found = foresee.foresee(measured.workload.spec, A100, **asked)
    assert found.points == foresee.foresee_points([measured], A100)
    some = foresee.foresee(measured.workload.spec, A100, **asked, backends=["liger", "eager"])
    assert [each.backend for each in some.points[0].backends] == ["liger", "eager"]
    for change in ({"tokens": [16, 8192]}, {"backends": ["quack"]}, {"fresh": True}):
        with pytest.raises(UsageError, match="no GPU is here to measure, and no whole rows are in"):
            foresee.foresee(measured.workload.spec, A100, **{**asked, **change})
    saved(tmp_path, replace(measured, complete=False))
    with pytest.raises(UsageError, match="no whole rows"):
        foresee.foresee(measured.workload.spec, A100, **asked)


def test_without_rows_the_gpu_at_hand_is_measured_and_no_choice_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "detect", lambda kind=None: H200)
    asked = []

    def measure(work, *, backends, json, **options):
        asked.append((work.tokens, list(backends)))
        made = replace(profile(row("eager"), row("liger", 0.5)), workload=work)
        results.save(made, json)
        return made

    monkeypatch.setattr(run, "profile", measure)
    how = {"tokens": [16, 256], "backends": ["eager", "liger"], "out": tmp_path}
    found = foresee.foresee(recorded().workload.spec, A100, **how)
    assert asked == [(16, ["eager", "liger"]), (256, ["eager", "liger"])]
    assert [point.least for point in found.points] == ["liger", "liger"]
    assert foresee.foresee(recorded().workload.spec, A100, **how) == found
    assert len(asked) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["inference-16.json", "inference-256.json", "plan.json"]


def test_rows_of_which_none_can_be_predicted_are_one_line(tmp_path, no_gpu):
    saved(tmp_path, profile(Row(backend="eager", status="ok"), device=CPU))
    with pytest.raises(
        UsageError, match=f"^no row can be predicted for {A100}: eager: it has no ledger of its launches$"
    ):
        foresee.foresee(recorded().workload.spec, A100, tokens=[8192], out=tmp_path)


# ---- how it is said --------------------------------------------------------------------------------------------------


def cli(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["mlpfusion", "choose", *arguments])
    return run_main()


def test_the_command_heads_it_as_predicted_in_four_formats(tmp_path, monkeypatch, capsys, no_gpu):
    saved(tmp_path, recorded())
    asked = ("article", "--device", "a100-80gb", "--tokens", "8192", "--out", str(tmp_path), "--format")
    shown = {}
    for fmt in ("text", "github", "csv", "json"):
        assert cli(monkeypatch, *asked, fmt) == 0
        shown[fmt], err = capsys.readouterr()
        assert err == (
            f"no choice.json is written: a choice is for the card it was measured on, not for {A100}; "
            "the name also fits NVIDIA A100 80GB PCIe\n"
        )
    assert shown["text"].startswith(f"predicted, not measured, for {A100} (312 TFLOP/s, 2039 GB/s; ")
    assert shown["github"].startswith(f"**predicted, not measured, for {A100} (")
    lines = {line["backend"]: line for line in csv.DictReader(io.StringIO(shown["csv"]))}
    assert (lines["fused"]["verdict"], lines["fused"]["kind"], lines["fused"]["card"]) == ("least", "prediction", A100)
    assert float(lines["fused"]["speedup_vs_least"]) == 1
    others = [
        float(line["speedup_vs_least"]) for name, line in lines.items() if line["speedup_vs_least"] and name != "fused"
    ]
    assert others
    assert max(others) < 1
    read = msgspec.json.decode(shown["json"], type=Foresight)
    assert foresight.render(read) == shown["text"]
    assert [each.name for each in tmp_path.iterdir()] == ["inference-8192.json"]
    with pytest.raises(UsageError, match="unknown format 'html'"):
        foresight.render(read, "html")
