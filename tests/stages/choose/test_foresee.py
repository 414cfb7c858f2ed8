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
from mlpfusion.report.predict import foresight
from mlpfusion.stages.choose import foresee
from mlpfusion.stages.predict import run as predict
from mlpfusion.stages.predict import scaled, sources
from mlpfusion.stages.profile import run
from mlpfusion.storage import results

A100 = "NVIDIA A100-SXM4-80GB"
RECORDED = json.loads((RESULTS / "h200-traffic.json").read_text("utf-8"))
H200 = Device(kind="cuda", name="NVIDIA H200", capability=(9, 0))
CPU = Device(kind="cpu", name="a CPU")


@pytest.fixture(autouse=True)
def no_package(monkeypatch):
    """As where no tables of measured products are installed, whatever is here."""
    monkeypatch.setattr(sources, "installed", lambda card: None)
    monkeypatch.setattr(sources, "missing", lambda card: "no tables")


def points(profiles, card=A100):
    return foresee.foresee_points(profiles, predict.card(card))


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
    (point,) = points([measured])
    times = {each.backend: each for each in predict.predict(measured, predict.card(A100))}
    assert point.least == min(times, key=lambda each: times[each].predicted_us) == "fused"
    for each in point.backends:
        if each.verdict == "not predicted":
            assert each.backend not in times
            assert each.reason.startswith(("Inductor's scheduler has", "the ledger has a launch"))
        else:
            own = times[each.backend]
            assert (each.predicted_us, each.low_us, each.high_us) == (own.predicted_us, own.low_us, own.high_us)
            assert each.steps == own.steps
            assert each.ratio == pytest.approx(own.predicted_us / times["fused"].predicted_us)
            meets = each.low_us <= times["fused"].high_us
            assert each.verdict == ("least" if each.backend == "fused" else "tied" if meets else "slower")
    assert point.measured_on == "NVIDIA H200"


def test_what_shares_a_time_with_the_least_is_tied():
    rows = [row("good"), row("near", 1.1), row("far", 2.5)]
    (point,) = points([profile(*rows)])
    by_name = {each.backend: each for each in point.backends}
    assert by_name["near"].low_us < by_name["good"].high_us < by_name["far"].low_us
    assert verdicts(point) == {"good": "least", "near": "tied", "far": "slower"}
    assert by_name["far"].ratio == pytest.approx(2.5, rel=0.03)
    assert by_name["good"].sources == ("scaled",)


def test_a_card_that_is_not_known_lends_no_efficiency():
    (point,) = points([profile(row("good"), row("far", 1.5), device=replace(H200, name="an unknown card"))])
    assert point.efficiency == scaled.RECORDED


def test_more_tokens_are_never_predicted_to_take_less():
    odd = [
        replace(profile(row("eager", size)), workload=replace(recorded().workload, seq=tokens))
        for tokens, size in ((256, 1.0), (16, 2.0), (1, 0.5))
    ]
    found = {point.tokens: point.backends[0] for point in points(odd)}
    assert list(found) == [256, 16, 1]  # in the order that was asked for
    assert found[1].predicted_us < found[16].predicted_us == found[256].predicted_us
    assert (found[256].guard, found[16].guard) == ("no faster than fewer tokens", None)
    assert found[256].low_us <= found[256].predicted_us <= found[256].high_us


def test_what_is_wrong_or_has_no_ledger_is_listed_with_its_reason():
    off = Accuracy(max_error=99.0, rms_error=99.0, eager_max_error=1.0, eager_rms_error=1.0, rows=1, elements=16)
    rows = [
        row("good"),
        row("wrong", 0.1, accuracy=off),
        row("interpreted", 0.1, emulated=True),
        Row(backend="absent", status="unavailable", reason="not installed"),
        Row(backend="bare", status="ok"),
    ]
    (point,) = points([profile(*rows)])
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
    assert found.points == points([measured])
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
