"""Predictions for a card that is not here: against the public tutorial's figures, and the error they admit."""

from __future__ import annotations

from statistics import median

import msgspec
import pytest
from support.paths import RESULTS

from mlpfusion.cli.main import main
from mlpfusion.device import KNOWN_CARDS, Device
from mlpfusion.errors import UsageError
from mlpfusion.records.prediction import Efficiency
from mlpfusion.records.profile import Decoded, Kernel, Row, Traffic
from mlpfusion.records.traffic import Step
from mlpfusion.stages.choose.predict import RECORDED, efficiency, peaks_of, predict, predict_steps
from mlpfusion.storage import results

ARTICLE = results.load(RESULTS / "h200-article.json")
M, D, H = 8192, 768, 3072
A100 = "NVIDIA A100-SXM4-80GB"
GEMM = {"read_bytes": 2 * (M * D + D * H), "write_bytes": 2 * M * H, "flops": 2 * M * D * H}


def steps(*times):
    given = list(times) or [None] * 4
    make = [
        {"op": "aten::mm", "role": "gate_gemm", **GEMM},
        {"op": "aten::mm", "role": "up_gemm", **GEMM},
        {"op": "_geglu_tanh_forward_kernel", "role": "act_mul", "read_bytes": 4 * M * H, "write_bytes": 2 * M * H},
        {"op": "aten::mm", "role": "down_gemm", **GEMM},
    ]
    return tuple(Step(source="operator", time_us=time, **one) for one, time in zip(make, given, strict=True))


def profile(*rows, name="NVIDIA H200", dtype="bfloat16"):
    spec = msgspec.structs.replace(ARTICLE.workload.spec, dtype=dtype)
    return msgspec.structs.replace(
        ARTICLE,
        rows=rows,
        device=Device(kind="cuda", name=name),
        workload=msgspec.structs.replace(ARTICLE.workload, spec=spec),
    )


def row(*times, backend="liger"):
    return Row(backend=backend, status="ok", traffic=Traffic(minimum_bytes=1, steps=steps(*times)))


def test_the_tutorials_figures_are_met_within_a_fifth():
    # Published for an A100-SXM4-80GB: 0.19, 0.19 and 0.17 ms for the matrix products, 89.4 µs for Inductor's fused
    # kernel and 92.8 for Liger's.
    (found,) = predict(profile(row()), A100)
    by_role: dict[str | None, float] = {step.role: step.predicted_us for step in found.steps}
    for role, published in (
        ("gate_gemm", [190]), ("up_gemm", [190]), ("down_gemm", [170]), ("act_mul", [89.4, 92.8]),
    ):  # fmt: skip
        for time in published:
            assert by_role[role] == pytest.approx(time, rel=0.2), role
    assert [step.bound for step in found.steps] == ["compute", "compute", "memory", "compute"]
    assert found.predicted_us == pytest.approx(sum(by_role.values()))
    assert found.peaks.source == "NVIDIA A100 datasheet"


def test_the_recorded_efficiency_is_that_of_the_recorded_run():
    peaks, compute, memory = KNOWN_CARDS["NVIDIA H200"], [], []
    streams = {"activation": 2, "mul": 3, "act_mul": 3}
    for one in ARTICLE.rows:
        for kernel in one.kernels:
            seconds = kernel.time_us * 1e-6
            if kernel.role.endswith("gemm"):
                flops = (4 if kernel.role == "gate_up_gemm" else 2) * M * D * H
                compute.append(flops / seconds / peaks.flops_16bit)
            elif kernel.role in streams:
                memory.append(2 * streams[kernel.role] * M * H / seconds / peaks.bandwidth)
    assert RECORDED.compute == pytest.approx(median(compute), abs=5e-4)
    assert RECORDED.memory == pytest.approx(median(memory), abs=5e-4)
    assert RECORDED.n == len(compute) + len(memory)


def test_the_card_at_hand_says_how_much_of_a_datasheet_is_reached_and_how_wrong_the_rule_is():
    measured = profile(row(50.0, 60.0, 40.0, 50.0))
    found = efficiency(measured)
    peak = KNOWN_CARDS["NVIDIA H200"]
    assert found.compute == pytest.approx(2 * M * D * H / 50e-6 / peak.flops_16bit)
    assert found.memory == pytest.approx(6 * M * H / 40e-6 / peak.bandwidth)
    (predicted,) = predict(measured, A100)
    assert predicted.efficiency == found
    assert predicted.error == pytest.approx(0.0)  # three of four launches are met
    assert predicted.worst_error == pytest.approx(1 - 50 / 60)


def test_without_times_the_recorded_efficiency_is_assumed_and_no_error_is_known():
    (predicted,) = predict(profile(row()), A100)
    assert predicted.efficiency == RECORDED
    assert (predicted.error, predicted.worst_error) == (None, None)
    (predicted,) = predict(profile(row(50.0, 60.0, 40.0, 50.0), name="an unknown card"), A100)
    assert (predicted.efficiency, predicted.error) == (RECORDED, None)


def test_a_prediction_is_bytes_or_operations_over_peak_and_share():
    assumed = Efficiency(compute=0.5, memory=0.25, n=1, source="nowhere")
    peaks = peaks_of(A100)
    found = predict_steps(steps(), peaks, assumed)
    assert found[0].predicted_us == pytest.approx(2 * M * D * H / 312e12 / 0.5 * 1e6)
    assert found[2].predicted_us == pytest.approx(6 * M * H / 2.039e12 / 0.25 * 1e6)


def test_what_cannot_be_predicted_is_refused_by_name():
    with pytest.raises(UsageError, match="unknown card 'NVIDIA Z1'; valid: NVIDIA A100-SXM4-80GB"):
        predict(profile(row()), "NVIDIA Z1")
    with pytest.raises(UsageError, match="float32"):
        predict(profile(row(), dtype="float32"), A100)
    with pytest.raises(UsageError, match="no row of this profile has a ledger"):
        predict(ARTICLE, A100)
    with pytest.raises(UsageError, match="ledger"):
        predict(profile(msgspec.structs.replace(row(), emulated=True)), A100)


def test_a_product_of_unknown_size_is_no_kernel_that_memory_bounds(tmp_path, capsys):
    # All four launches ran a kernel whose name says that it is a matrix product; the third has no operations.
    kernel = Kernel(name="nvjet", role="other", decoded=Decoded(kind="gemm"), time_us=50.0)
    launches = tuple(msgspec.structs.replace(step, kernels=(0,)) for step in steps(50.0, 60.0, 40.0, 50.0))
    made = Row(backend="odd", status="ok", kernels=(kernel,), traffic=Traffic(minimum_bytes=1, steps=launches))
    found, whole = predict(profile(made, row(50.0, 60.0, 40.0, 50.0)), A100)
    assert (found.incomplete, whole.incomplete) == ("_geglu_tanh_forward_kernel", None)
    assert efficiency(profile(made)) is None  # nothing is known to be bound by memory
    results.save(profile(made), tmp_path / "result.json")
    assert main(["predict", str(tmp_path / "result.json")]) == 0
    shown = capsys.readouterr().out
    assert "odd: at least this long; how many operations _geglu_tanh_forward_kernel takes is not known" in shown


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_the_command_labels_every_figure_as_predicted(tmp_path, capsys, fmt):
    path = tmp_path / "result.json"
    results.save(profile(row(50.0, 60.0, 40.0, 50.0)), path)
    assert main(["predict", str(path), "--format", fmt]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("predicted, not measured, for NVIDIA A100-SXM4-80GB (312 TFLOP/s, 2039 GB/s; NVIDIA A100")
    assert "predicted µs" in shown
    assert main(["predict", str(path), "--card", "GPU"]) == 2
    assert "unknown card 'GPU'; valid:" in capsys.readouterr().err
    assert main(["predict", str(path), "--format", "csv"]) == 2
