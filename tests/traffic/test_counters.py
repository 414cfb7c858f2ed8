"""Hardware counters: what is asked of Nsight Compute, how its table is read, and what a row makes of it."""

from __future__ import annotations

import json
import os
import sys

import msgspec
import pytest
from support import in_this_process
from support.counted import GELU, GPU, TRACED
from support.paths import TESTS

from mlpfusion.records.profile import Kernel, Row, Traffic
from mlpfusion.records.traffic import Intermediate, Step
from mlpfusion.report.profile.table import render
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.profile import run
from mlpfusion.trace.names.decode import decode
from mlpfusion.traffic import counters as counters_traffic
from mlpfusion.traffic import nsight_compute
from mlpfusion.traffic.nsight_compute import KernelBytes
from mlpfusion.workers import supervise

WORK = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"), batch=2, seq=5)


# ---- where there are none --------------------------------------------------------------------------------------------


def test_without_a_gpu_a_profile_has_everything_but_the_counters(monkeypatch):
    monkeypatch.setattr(supervise, "run", in_this_process.run)
    result = run.profile(WORK, backends=["eager"], device="cpu", rounds=1, counters=True)
    (row,) = result.rows
    assert (row.status, row.traffic.round_trips, row.traffic.measured_bytes) == ("ok", 4, None)
    assert row.traffic.reasons["measured_bytes"] == "hardware counters need a GPU; this run is on the CPU"
    assert "measured_bytes: not measured: hardware counters need a GPU" in render(result, full=True)


# ---- a run -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """An executable `ncu` on the PATH, and a function that says what it will do."""
    script = TESTS / "support" / "fake_ncu.py"
    ncu = tmp_path / "bin" / "ncu"
    ncu.parent.mkdir()
    ncu.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ncu.parent}{os.pathsep}{os.environ['PATH']}")

    def does(how, **kernels):
        monkeypatch.setenv("FAKE_NCU", how)
        monkeypatch.setenv("FAKE_NCU_KERNELS", json.dumps(kernels))
        folder = tmp_path / "scratch"
        folder.mkdir()
        return counters_traffic.count(list(kernels), WORK, GPU, folder=folder, seed=0, time_limit_s=900)

    return does


def test_every_backend_is_counted_twice_in_one_run_each(fake):
    in_sequence, alone = fake("ok", eager=[[GELU, 10, 20]], triton=[["act_mul", 3, 4], ["nvjet", 5, 6]])
    assert in_sequence == {
        "eager": (KernelBytes(GELU, 10, 20),),
        "triton": (KernelBytes("act_mul", 3, 4), KernelBytes("nvjet", 5, 6)),
    }
    assert alone["eager"] == (KernelBytes(GELU, 20, 20),)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("refused", nsight_compute.NOT_PERMITTED),
        ("silent", "Nsight Compute wrote no table: ==WARNING== No kernels were profiled."),
        ("broken", "the run under Nsight Compute failed: the worker exited with code 3"),
    ],
)
def test_a_run_that_gives_nothing_gives_the_reason(fake, how, says):
    in_sequence, alone = fake(how, eager=[], triton=[])
    assert in_sequence == alone == {"eager": says, "triton": says}


# ---- on a row --------------------------------------------------------------------------------------------------------


def row(**changes):
    names = ("Memset (Device)", "nvjet_a", TRACED, "nvjet_b")
    roles = ("memset", "gate_gemm", "activation", "down_gemm")
    kernels = [
        Kernel(name=name, role=role, decoded=decode(name), time_us=1.0) for name, role in zip(names, roles, strict=True)
    ]
    steps = (
        Step(op="aten::mm", source="operator", role="gate_gemm", read_bytes=60, write_bytes=40, kernels=(0, 1)),
        Step(op="aten::gelu", source="operator", role="activation", read_bytes=40, write_bytes=40, kernels=(2,)),
        Step(op="aten::mm", source="operator", role="down_gemm", read_bytes=60, write_bytes=20, kernels=(3,)),
    )
    value = Intermediate(role="gate", bytes=40, moved_bytes=80, written_by="1", read_by=("2",))
    traffic = Traffic(minimum_bytes=10, derived_bytes=260, round_trips=2, steps=steps, intermediates=(value,))
    return Row(backend="eager", status="ok", kernels=tuple(kernels), traffic=traffic, **changes)


def with_counters(sequence, alone=None):
    def named(counts):
        return {"eager": tuple(KernelBytes(n, *c) for n, c in zip(("nvjet_a", GELU, "nvjet_b"), counts, strict=True))}

    return counters_traffic.with_counters(row(), named(sequence), {} if alone is None else named(alone), GPU).traffic


def test_kernels_find_their_steps_past_fills():
    found = with_counters([(61, 40), (40, 41), (62, 20)], [(61, 41), (41, 41), (63, 21)])
    assert [(step.measured_read_bytes, step.measured_write_bytes) for step in found.steps] == [
        (61, 40),
        (40, 41),
        (62, 20),
    ]
    assert [step.alone_bytes for step in found.steps] == [102, 82, 84]
    assert (found.measured_bytes, found.alone_bytes) == (264, 268)
    assert found.explained is None  # within 5 %


def test_fewer_bytes_than_derived_are_the_l2_where_emptying_it_brings_them_back():
    found = with_counters([(60, 10), (5, 10), (20, 20)], [(60, 40), (40, 40), (60, 20)])
    assert found.measured_bytes == 125
    assert found.explained.startswith(
        "0.000135 MB less than derived: the L2 (60 MiB) cached part of what one kernel wrote"
    )


def test_fewer_bytes_that_emptying_the_l2_does_not_bring_back_are_not_explained_away():
    found = with_counters([(60, 10), (5, 10), (20, 20)], [(60, 10), (6, 10), (20, 20)])
    assert found.explained.endswith("which the caches do not explain")


def test_more_bytes_than_derived_name_the_kernel_that_reads_again():
    found = with_counters([(160, 40), (40, 40), (60, 20)])
    assert found.explained == (
        "0.0001 MB more than derived: 0.0001 MB more read, as operands are read again, most in gate_gemm (0.0001 MB)"
    )


def test_what_is_written_beyond_the_results_is_told_from_what_is_read_again():
    found = with_counters([(60, 40), (40, 45), (60, 50)])
    assert found.explained == (
        "3.5e-05 MB more than derived: 3.5e-05 MB more written, as the L2 (60 MiB) still cached earlier writes, "
        "or for a workspace, most in down_gemm (3e-05 MB)"
    )
    found = with_counters([(90, 50), (35, 35), (60, 30)])
    assert found.explained == (
        "4e-05 MB more than derived: 2.5e-05 MB more read, as operands are read again, most in gate_gemm (3e-05 MB); "
        "1.5e-05 MB more written, as the L2 (60 MiB) still cached earlier writes, or for a workspace, most in "
        "gate_gemm (1e-05 MB)"
    )


def test_without_a_second_run_the_size_of_the_l2_is_all_that_is_known():
    found = with_counters([(60, 10), (5, 10), (20, 20)])
    assert "near the L2 (60 MiB)'s size" in found.explained


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("nvjet_a", GELU), "saw 2 kernels where the trace shows 3"),
        (("nvjet_a", GELU, "nvjet_c"), "saw 'nvjet_c' where the trace shows 'nvjet_b'"),
    ],
)
def test_kernels_of_another_call_are_not_put_on_the_row(names, says):
    found = counters_traffic.with_counters(
        row(), {"eager": tuple(KernelBytes(name, 1, 1) for name in names)}, {}, GPU
    ).traffic
    assert found.measured_bytes is None
    assert says in found.reasons["measured_bytes"]
    assert all(step.measured_read_bytes is None for step in found.steps)


@pytest.mark.parametrize(("role", "op"), [("memcpy", "aten::clone"), ("memset", "aten::zero_")])
def test_what_no_counter_sees_has_no_bytes_and_leaves_no_sum(role, op):
    made = row()
    name = "Memset (Device)" if role == "memset" else "Memcpy DtoD (Device -> Device)"
    copy = Kernel(name=name, role=role, decoded=decode(name), time_us=1.0)
    step = Step(op=op, source="operator", role=role, read_bytes=20, write_bytes=20, kernels=(4,))
    traffic = msgspec.structs.replace(made.traffic, steps=(*made.traffic.steps, step))
    made = msgspec.structs.replace(made, kernels=(*made.kernels, copy), traffic=traffic)
    sequence = {"eager": tuple(KernelBytes(name, 60, 40) for name in ("nvjet_a", GELU, "nvjet_b"))}
    found = counters_traffic.with_counters(made, sequence, sequence, GPU).traffic
    assert [step.measured_read_bytes for step in found.steps] == [60, 60, 60, None]
    assert [step.alone_bytes for step in found.steps] == [100, 100, 100, None]
    assert (found.measured_bytes, found.alone_bytes, found.explained) == (None, None, None)
    assert f"not the copies and fills of {op}, which move 4e-05 MB" in found.reasons["measured_bytes"]
    assert "the kernels move 0.0003 MB, 0.00026 MB as derived" in found.reasons["measured_bytes"]


def with_one_more(name, role, *, steps):
    """The row with one more kernel that belongs to no step, or without any steps, counted."""
    made = row()
    more = Kernel(name=name, role=role, decoded=decode(name), time_us=1.0)
    traffic = made.traffic if steps else Traffic(minimum_bytes=1, round_trips_at_least=1)
    made = msgspec.structs.replace(made, kernels=(*made.kernels, more), traffic=traffic)
    names = ["nvjet_a", GELU, "nvjet_b", *([] if name.startswith("Memcpy") else [name])]
    sequence = {"eager": tuple(KernelBytes(name, 60, 40) for name in names)}
    return counters_traffic.with_counters(made, sequence, sequence, GPU).traffic


@pytest.mark.parametrize("steps", [True, False])
def test_a_copy_by_the_driver_that_belongs_to_no_launch_leaves_no_sum(steps):
    found = with_one_more("Memcpy DtoD (Device -> Device)", "memcpy", steps=steps)
    assert (found.measured_bytes, found.alone_bytes, found.explained) == (None, None, None)
    assert "not the copies and fills of Memcpy DtoD (Device -> Device);" in found.reasons["measured_bytes"]
    assert ("0.00026 MB as derived" in found.reasons["measured_bytes"]) == steps


@pytest.mark.parametrize("role", ["other", "memcpy"])  # a kernel is counted, whatever it does
def test_a_counted_kernel_that_belongs_to_no_launch_is_named(role):
    found = with_one_more("copy_kernel", role, steps=True)
    assert found.explained.startswith("0.00014 MB more than derived: ")
    assert found.explained.endswith("0.0001 MB by copy_kernel, which belongs to no launch")


def test_without_launches_the_counters_say_what_the_kernels_move():
    assert with_one_more("copy_kernel", "other", steps=False).measured_bytes == 400


def test_the_second_run_is_of_the_same_kernels_or_says_why_it_is_not_shown():
    sequence = {"eager": tuple(KernelBytes(name, 60, 40) for name in ("nvjet_a", GELU, "nvjet_b"))}
    others = {"eager": tuple(KernelBytes(name, 60, 40) for name in ("nvjet_a", GELU, "nvjet_c"))}
    for alone, says in (
        (others, "with the caches emptied before each kernel Nsight Compute saw 'nvjet_c' where the trace shows"),
        ({"eager": "the second run failed"}, "the second run failed"),
        ({}, "no run with the caches emptied before each kernel"),
    ):
        found = counters_traffic.with_counters(row(), sequence, alone, GPU).traffic
        assert (found.measured_bytes, found.alone_bytes) == (300, None)
        assert all(step.alone_bytes is None for step in found.steps)
        assert found.reasons["alone_bytes"].startswith(says)


def test_the_table_shows_measured_beside_derived():
    made = row()
    found = counters_traffic.with_counters(
        made, {"eager": tuple(KernelBytes(n, 10**8, 10**8) for n in ("nvjet_a", GELU, "nvjet_b"))}, {}, GPU
    )
    from mlpfusion.report.profile.columns.every import all_columns

    shown = {column.key: column.text(found) for column in all_columns()}
    assert shown["hbm_bytes"].endswith("/ 600")
