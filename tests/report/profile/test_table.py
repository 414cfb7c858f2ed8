"""table: what a reader is shown of a profile, and what is kept from him."""

from __future__ import annotations

import csv
import io
import json
import re

import msgspec
import pytest
from support.profiles_made import COMPILE, EAGER, LIGER, TRITON, clock, kernel, profile, ratio

from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Bound, Clocks
from mlpfusion.records.profile import Accuracy, PreOps, Row
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.table import COLUMNS, FORMATS, render
from mlpfusion.storage import results


def line(text: str, *starts: str) -> str:
    """The first line that starts so, runs of spaces made single ones; a line of the legend goes on below it."""
    legend, _, rest = text.partition("\n\n")
    whole = re.sub(r"\n {13}", " ", legend) + "\n" + rest if legend.startswith("device") else text
    squeezed = [" ".join(each.split()) for each in whole.splitlines()]
    return next(each for each in squeezed if each.startswith(starts))


def test_the_header_says_where_how_and_of_what() -> None:
    text = render(profile(), full=True)
    assert line(text, "device").startswith(
        "device NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors, 80.0 GiB memory, 50.0 MiB L2, SM clock 1980 MHz"
    )
    assert "989 TFLOP/s, 3350 GB/s (NVIDIA H100 datasheet (SXM))" in line(text, "device")
    assert "batch 64 × seq 128 = 8192 tokens" in line(text, "workload")
    assert "gelu_tanh, bfloat16, no bias, inference" in line(text, "workload")
    for version in ("mlpfusion 0.1.0", "torch 2.11.0", "triton 3.6.0", "CUDA 12.8", "OMP_NUM_THREADS 1"):
        assert version in line(text, "versions")
    assert line(text, "measured") == "measured 2026-01-02T03:04:05+00:00"
    assert line(text, "event_us") == "event_us device events around a plain call, L2 cold, n = 58–60, 2 dropped"
    assert line(text, "speedup").startswith("speedup eager's event_us / the backend's, median of 60 interleaved rounds")
    assert "CPU run" not in text


def test_a_row_carries_its_spread_its_ratio_and_its_bound() -> None:
    text = render(profile(), full=True)
    assert line(text, "eager ok") == "eager ok 5 2 / 0 242.6 [241.9–243.4] baseline"
    assert line(text, "compile ok") == "compile ok 4 2 / 0 228.8 [228.1–229.6] 1.060x [1.057–1.064]"
    host = text.split("\nHost\n")[1]
    assert line(host, "eager") == "eager 238.0 [237.3–238.8] 5 104.8 [103.9–106.1] gpu 2.31x 31.5 – –"
    assert line(host, "compile") == "compile – 4 104.8 [103.9–106.1] gpu 2.31x 80.5 22.5 9.10"
    memory = text.split("\nMemory, accuracy, setup\n")[1]
    assert line(memory, "eager") == "eager 39.0 / 455 / – 1912 [1905–1917] 151 1.00 / 1.00 <0.001 s + 0.250 s"
    assert line(memory, "compile").split(" ", 8)[8] == "0.980 / 1.10 <0.001 s + 0.250 s"


def test_kernels_are_listed_in_order_with_their_decoded_names() -> None:
    kernels = render(profile(), full=True).split("\nKernels\n")[1]
    assert (
        line(kernels, "eager") == "eager 1 gate_gemm nvjet_tst_128x256 cublas sm90 128x256 4 stages 61.80 [61.50–62.20]"
    )
    assert line(kernels, "2").startswith("2 activation at::native::vectorized_elementwise_kernel<…>")
    assert "triton_poi_fused__unsafe_view_gelu_mul_0" in line(kernels, "compile")


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_no_row_is_dropped_and_none_without_its_reason(fmt: str) -> None:
    text = render(profile(), fmt, full=True)
    for backend, word in [("liger", "unavailable"), ("hub", "failed"), ("triton", "emulated")]:
        assert backend in text
        assert word in text
    assert "hub: failed: numerically wrong: 41 times eager's error" in text
    assert "triton: emulated: 8 tokens, no times" in text
    assert "emulated (triton)" not in text  # said once is enough
    assert "compile: asked for nothing special" in text
    assert "graph_us: not measured: capture is off (eager, compile)" in text
    assert "saved_for_backward_bytes: not measured: inference keeps nothing (eager, compile)" in text


def test_a_failed_row_without_a_reason_says_so() -> None:
    assert "hub: failed: no reason was recorded" in render(profile(Row(backend="hub", status="failed")), full=True)


def test_a_number_without_a_spread_is_not_printed() -> None:
    few = msgspec.structs.replace(
        EAGER,
        clocks=Clocks(event_us=clock(242.61, n=5, p20=None, p80=None)),
        bound=Bound(by="gpu", margin=2.314, host_us=104.8, device_us=242.6, n=5),
        kernels=tuple(msgspec.structs.replace(each, p20_us=None, p80_us=None) for each in EAGER.kernels),
        pre_ops=PreOps(n=6, time_to_first_launch=31.5),
    )
    known = "without a spread, from 20 samples on, nothing is printed (eager, compile)"
    for fmt in ("text", "github"):
        text = render(profile(few, msgspec.structs.replace(few, backend="compile")), fmt, full=True)
        assert not [number for number in ("242", "105", "2.31", "61.8", "41.0") if number in text]
        for figure, n in [("event_us", 5), ("host_us and bound", 5), ("kernel times", 6)]:
            assert f"{figure}: {n} samples; {known}" in text


def test_a_bound_of_an_older_file_is_not_printed_either() -> None:
    older = msgspec.structs.replace(EAGER, bound=Bound(by="gpu", margin=2.314, host_us=104.8, device_us=242.6))
    text = render(profile(older), full=True)
    assert "2.31" not in text
    assert "host_us and bound: the file does not record how many samples" in text
    assert json.loads(render(profile(older), "json", ["host_us"]))["rows"][0]["host_us"] == 104.8


def test_the_header_says_of_which_call_the_parts_are() -> None:
    assert line(render(profile(), full=True), "trace").startswith(
        "trace kernel times: medians of 20 traced calls; µs to first launch, its Dynamo part, its compiled graph "
        "part: of the median call of 20 traced calls"
    )


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_nothing_in_a_file_steers_the_terminal(fmt: str) -> None:
    evil = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\rc"
    row = msgspec.structs.replace(
        EAGER, backend=evil, kernels=(kernel(evil, "other", 3.0),), notes=(evil, "two\nlines"), trace_file=evil
    )
    text = render(profile(row, Row(backend="hub", status="failed", reason=evil), created=evil), fmt, full=True)
    assert [letter for letter in text if not letter.isprintable() and letter != "\n"] == []
    assert "two lines" in text
    assert "owned" in text


def test_a_cpu_run_says_so_and_takes_the_ratio_of_the_clock_that_it_has() -> None:
    row = msgspec.structs.replace(COMPILE, clocks=Clocks(wall_us=clock(900.0, l2="unknown", ratio_to_eager=ratio(0.8))))
    text = render(profile(EAGER, row, device=Device(kind="cpu", name="a CPU", multiprocessors=2)), full=True)
    assert line(text, "device").startswith("device CPU run on a CPU, 2 cores")
    assert line(text, "speedup").startswith("speedup eager's wall_us / the backend's")
    assert line(text, "wall_us").endswith("synchronised, L2 unknown, n = 60")


def test_background_load_is_said_once_for_a_race() -> None:
    def beside(row: Row, share: float | None) -> Row:
        return msgspec.structs.replace(row, clocks=msgspec.structs.replace(row.clocks, neighbours=share))

    text = render(profile(beside(EAGER, 0.37), beside(COMPILE, 0.37), TRITON, LIGER), full=True)
    assert text.count("background load was 37% of the CPU during the race") == 1
    assert "may be inflated (eager, compile)" in text
    assert "background load" not in render(profile(beside(EAGER, 0.05), beside(COMPILE, None), LIGER), full=True)


def test_an_interrupted_run_says_so() -> None:
    assert line(render(profile(complete=False), full=True), "incomplete")
    assert "incomplete" not in render(profile(), full=True)


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ((None, None, 0.1, 0.1), "nan or inf / nan or inf"),
        ((None, 0.2, 0.1, 0.1), "nan or inf / 2.00"),
        ((0.003, 0.0, 0.0, 0.0), "3.00e-03 over 0 / 0"),
        ((0.003, 1e-300, 0.0, 1e-300), "3.00e-03 over 0 / 1.00"),
        ((1e300, 0.1, 1e-300, 0.0), "1.00e+300 over 1.00e-300 / 1.00e-01 over 0"),
        ((0.0, 0.0, 0.1, 0.0), "0 / 0"),
    ],
)
def test_a_ratio_of_errors_that_is_no_number_is_said_in_words(
    errors: tuple[float | None, float | None, float, float], said: str
) -> None:
    names = ("max_error", "rms_error", "eager_max_error", "eager_rms_error")
    accuracy = Accuracy(**dict(zip(names, errors, strict=True)), rows=1, elements=8)
    for fmt in ("text", "github"):
        assert said in render(profile(msgspec.structs.replace(EAGER, accuracy=accuracy)), fmt, full=True)
    words = accuracy.times("eager")
    assert "inf times" not in words
    assert words == "nan or inf where eager is finite" or "eager has none" in words or "times eager's error" in words


def test_github_tables_survive_pipes_and_angle_brackets() -> None:
    text = render(profile(), "github", full=True)
    tables = [each for each in text.splitlines() if each.startswith("|")]
    assert all(each.endswith("|") for each in tables)
    assert "- liger: unavailable: no GPU \\| and no driver" in text
    assert "`at::native::vectorized_elementwise_kernel<…>`" in text
    assert "**Speed**\n\n| backend" in text
    assert "- **device**: NVIDIA H100" in text


def test_csv_has_one_full_line_per_backend() -> None:
    rows = list(csv.DictReader(io.StringIO(render(profile(), "csv"))))
    assert [row["backend"] for row in rows] == ["eager", "compile", "liger", "hub", "triton"]
    compiled = rows[1]
    assert float(compiled["event_us"]) == 228.83
    assert float(compiled["event_us_p20"]) == 228.83 - 0.7
    assert (compiled["event_us_n"], compiled["event_us_l2"], compiled["event_us_dropped"]) == ("58", "cold", "2")
    assert float(compiled["event_us_speedup"]) == float(compiled["speedup_vs_eager"]) == 1 / 0.943
    assert float(compiled["speedup_vs_eager_low"]) == 1 / (0.943 + 0.003)
    assert float(compiled["speedup_vs_eager_high"]) == 1 / (0.943 - 0.003)
    assert compiled["speedup_vs_eager_clock"] == "event_us"
    assert (compiled["launches"], compiled["launch_apis"]) == ("4", "cuLaunchKernelEx=3 cudaLaunchKernel=1")
    assert (compiled["graph_us"], compiled["memsets"], compiled["dynamo_us"]) == ("", "2", "22.5")
    assert {row["device"] for row in rows} == {"NVIDIA H100 80GB HBM3"}
    assert {row["torch"] for row in rows} == {"2.11.0"}
    assert rows[2]["status"] == "unavailable"
    assert rows[2]["reason"] == "no GPU | and no driver"


def test_json_is_the_result_file_itself() -> None:
    assert render(profile(), "json") == results.encode(profile())


def test_chosen_columns_come_in_their_order_after_the_backend() -> None:
    text = render(profile(), "text", ["speedup_vs_eager", "status"])
    assert line(text, "backend").split() == ["backend", "speedup", "vs", "eager", "status"]
    assert line(text, "compile") == "compile 1.060x [1.057–1.064] ok"
    assert line(text, "liger") == "liger – unavailable"
    assert "Kernels" not in text
    rows = json.loads(render(profile(), "json", ["bound"]))["rows"]
    assert rows[0]["bound"] == "gpu"
    assert rows[0]["bound_margin"] == 2.314
    assert rows[0]["device"] == "NVIDIA H100 80GB HBM3"
    assert "event_us" not in rows[0]
    assert render(profile(), "csv", ["backend", "bound"]).splitlines()[1].endswith("eager,gpu,2.314")


@pytest.mark.parametrize("columns", [["speed"], ["status", "status"], [""]])
def test_a_wrong_column_is_named(columns: list[str]) -> None:
    with pytest.raises(UsageError, match="column"):
        render(profile(), "text", columns)


@pytest.mark.parametrize(("old", "new"), [("vs_eager", "speedup_vs_eager"), ("of_limit", "of_roofline")])
def test_an_earlier_name_of_a_column_leads_to_the_one_of_today(old: str, new: str) -> None:
    assert new in COLUMNS
    with pytest.raises(UsageError, match=f"column '{old}' is now '{new}': ") as refused:
        render(profile(), "text", ["status", old])
    assert "\n" not in str(refused.value)


def test_a_wrong_format_is_named() -> None:
    with pytest.raises(UsageError, match="unknown format 'latex'; valid: text, github, csv, json"):
        render(profile(), "latex")


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_profile_without_rows_is_no_crash(fmt: str) -> None:
    empty = msgspec.structs.replace(profile(), rows=())
    assert render(empty, fmt).endswith("\n") or fmt == "csv"


def test_column_names_are_unique() -> None:
    assert len(set(COLUMNS)) == len(COLUMNS)
    data = [key for column in all_columns() for key in column.data(EAGER)]
    assert len(set(data)) == len(data)
