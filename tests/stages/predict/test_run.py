"""Predictions for a card that is not here: against the public tutorial's figures, and the error they admit."""

from __future__ import annotations

import math
from statistics import median

import msgspec
import pytest
from support import products_made
from support.paths import RESULTS

from mlpfusion.cli.main import main
from mlpfusion.device import KNOWN_CARDS, Device
from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Clock, Clocks
from mlpfusion.records.prediction import Efficiency
from mlpfusion.records.profile import Decoded, Kernel, Row, Traffic
from mlpfusion.records.traffic import Step
from mlpfusion.stages.predict import run, scaled, sources
from mlpfusion.stages.predict.products import Products, machine_error
from mlpfusion.stages.predict.scaled import RECORDED, efficiency
from mlpfusion.storage import results

ARTICLE = results.load(RESULTS / "h200-article.json")
M, D, H = 8192, 768, 3072
A100 = "NVIDIA A100-SXM4-80GB"
GEMM = {"read_bytes": 2 * (M * D + D * H), "write_bytes": 2 * M * H, "flops": 2 * M * D * H}


@pytest.fixture(autouse=True)
def no_package(monkeypatch):
    """As where no tables of measured products are installed, whatever is here."""
    monkeypatch.setattr(sources, "installed", lambda card: None)
    monkeypatch.setattr(sources, "missing", lambda card: "no tables")


def predict(found, card, assumed=None):
    return run.predict(found, run.card(card), assumed)


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


def test_the_tutorials_figures_are_met_within_a_fifth_without_a_table():
    # Published for an A100-SXM4-80GB: 0.19, 0.19 and 0.17 ms for the matrix products, 89.4 µs for Inductor's fused
    # kernel and 92.8 for Liger's.
    (found,) = predict(profile(row()), A100)
    by_role = {step.role: step.predicted_us for step in found.steps}
    for role, published in (
        ("gate_gemm", [190]), ("up_gemm", [190]), ("down_gemm", [170]), ("act_mul", [89.4, 92.8]),
    ):  # fmt: skip
        for time in published:
            assert by_role[role] == pytest.approx(time, rel=0.22), role
    assert [step.bound for step in found.steps] == ["compute", "compute", "memory", "compute"]
    assert {step.source for step in found.steps} == {"scaled"}
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


def test_without_times_the_recorded_efficiency_is_assumed():
    (predicted,) = predict(profile(row()), A100)
    assert predicted.efficiency == RECORDED
    (predicted,) = predict(profile(row(50.0, 60.0, 40.0, 50.0), name="an unknown card"), A100)
    assert predicted.efficiency == RECORDED


# ---- intervals, tables, guards ---------------------------------------------------------------------------------------


def test_each_time_has_an_interval_that_is_wider_for_what_is_scaled_and_narrower_for_a_call_than_for_its_parts():
    (found,) = predict(profile(row(50.0, 60.0, 40.0, 50.0)), A100)
    widths = [step.high_us / step.predicted_us for step in found.steps]
    assert widths == pytest.approx([math.exp(0.20)] * 2 + [math.exp(0.15), math.exp(0.20)])
    assert found.low_us < found.predicted_us < found.high_us
    assert found.high_us / found.predicted_us < max(widths)


def test_a_library_s_products_come_from_the_table_of_the_card_and_name_what_is_near():
    table = products_made.made()
    there = run.Card(A100, run.peaks_of(A100), Products(run.peaks_of(A100), table), ())
    gelu_inside = Decoded(library="cublas", kind="gemm", fused_ops=("gelu",))
    fused = Row(
        backend="fused",
        status="ok",
        kernels=(Kernel(name="k", role="gate_up_gemm", decoded=gelu_inside, time_us=100.0),),
        traffic=Traffic(
            minimum_bytes=1,
            steps=(Step(op="a_kernel", source="triton", role="gate_up_gemm", time_us=100.0, kernels=(0,), **GEMM),),
        ),
    )
    found, own = run.predict(profile(row(50.0, 60.0, 40.0, 50.0), fused), there)
    sources_of = {step.role: step.source for step in found.steps}
    assert sources_of == dict.fromkeys(("gate_gemm", "up_gemm", "down_gemm"), "measured table") | {"act_mul": "scaled"}
    for step, shape in zip(found.steps, ((M, H, D), (M, H, D), None, (M, D, H)), strict=True):
        if shape is not None:
            assert step.predicted_us == pytest.approx(products_made.true_us(*shape), rel=1e-6)
            assert (step.nearest[0].m, step.nearest[0].n, step.nearest[0].k) == shape
    assert [step.source for step in own.steps] == ["scaled"]
    # All products of one table err together, act·mul by itself.
    gate, up, mul, down = found.steps
    common, total = math.hypot(table.spread, machine_error(M)), found.predicted_us
    products = gate.predicted_us + up.predicted_us + down.predicted_us
    width = math.hypot(common * products, 0.15 * mul.predicted_us)
    assert math.log(found.high_us / total) == pytest.approx(width / total)


def test_backward_products_of_unknown_order_take_the_mean_of_those_they_can_be():
    table = products_made.made()
    products = Products(run.peaks_of(A100), table)
    step = Step(op="aten::mm", source="operator", role="gate_gemm", backward=True, time_us=80.0, **GEMM)
    made = Row(backend="eager", status="ok", traffic=Traffic(minimum_bytes=1, steps=(step,)))
    (found,) = run.predict(profile(made), run.Card(A100, run.peaks_of(A100), products, ()))
    times = [products.estimate(*shape).us for shape in ((M, H, D), (M, D, H), (H, D, M))]
    assert found.predicted_us == pytest.approx(math.prod(times) ** (1 / 3))
    assert found.steps[0].low_us <= min(times) * 1.001
    assert found.steps[0].high_us >= max(times) * 0.999


def test_no_prediction_beats_the_roofline():
    warm = predict(profile(row(0.5, 0.5, 0.5, 0.5)), A100)[0]  # faster here than any card
    for step, asked in zip(warm.steps, steps(), strict=True):
        limit, _ = scaled.limit_us(asked, run.peaks_of(A100))
        assert step.predicted_us >= limit
        assert step.low_us >= limit


def test_a_card_that_is_worse_in_both_peaks_is_no_faster_unless_it_was_measured():
    slow = predict(
        profile(row(900.0, 900.0, 900.0, 900.0)), A100, Efficiency(compute=1.0, memory=1.0, n=1, source="x")
    )[0]
    assert all(step.predicted_us >= 900.0 for step in slow.steps)
    there = run.Card(A100, run.peaks_of(A100), Products(run.peaks_of(A100), products_made.made()), ())
    (measured,) = run.predict(profile(row(900.0, 900.0, 900.0, 900.0)), there)
    assert measured.steps[0].predicted_us == pytest.approx(products_made.true_us(M, H, D), rel=1e-6)
    assert measured.steps[0].guard is None
    # Times of a card that is worse bound nothing.
    up = predict(profile(row(190.0, 190.0, 90.0, 170.0), name=A100), "NVIDIA H200")[0]
    assert all(step.guard is None for step in up.steps)


def test_kernels_that_overlap_at_hand_overlap_there():
    kernels = tuple(Kernel(name=name, role="other", decoded=Decoded(), time_us=50.0) for name in "ab")
    clocks = Clocks(kernel_us=Clock(n=1, median=80.0, p20=None, p80=None, l2="cold"))
    made = msgspec.structs.replace(row(50.0, 60.0, 40.0, 50.0), kernels=kernels, clocks=clocks)
    (found,) = predict(profile(made), A100)
    assert found.overlap == pytest.approx(0.8)
    assert found.predicted_us == pytest.approx(0.8 * sum(step.predicted_us for step in found.steps))


def test_a_user_s_rows_join_and_are_named(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(f"m,n,k,dtype,us\n{M},{H},{D},bfloat16,200\n", "utf-8")
    there = run.card(A100, str(path))
    assert there.notes == ("no tables", "products of mine.csv: 1")
    (found,) = run.predict(profile(row(50.0, 60.0, 40.0, 50.0)), there)
    assert found.steps[0].predicted_us == pytest.approx(200.0)
    assert found.steps[0].nearest[0].source == "mine.csv"


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
    assert "80% interval" in shown
    assert "no tables" in shown
    assert main(["predict", str(path), "--format", fmt, "--explain"]) == 0
    assert "no launch rests on measured products of this card" in capsys.readouterr().out
    assert main(["predict", str(path), "--table", str(tmp_path / "none.csv")]) == 2
    assert "none.csv' does not exist" in capsys.readouterr().err
    assert main(["predict", str(path), "--card", "GPU"]) == 2
    assert "unknown card 'GPU'; valid:" in capsys.readouterr().err
    assert main(["predict", str(path), "--format", "csv"]) == 2
