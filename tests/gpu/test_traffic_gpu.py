"""Round-trips and bytes on a GPU: every backend's count, and hardware counters where they may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from support.bench import bench

from mlpfusion import backend, device, reference
from mlpfusion.device import detect
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.profile import run
from mlpfusion.traffic import nsight_compute
from mlpfusion.traffic.recording import collect

if TYPE_CHECKING:
    from mlpfusion.records.profile import Profile, Row

ROUND_TRIPS = {
    "eager": 4, "compile": 3, "compile-max-autotune": 3, "liger": 3, "triton": 3, "packed": 2, "fused": 1,
}  # fmt: skip
# As within, and the input and the output that a graph keeps for itself.
GRAPHS = {"compile-cudagraphs": 5, "fused-graph": 3}
NAMES = [name for name in (*ROUND_TRIPS, *GRAPHS) if name in backend.names()]
ROLES_KNOWN = ("eager", "compile", "liger", "triton", "packed")  # their kernels have formulas of their own
M, D, H = 8192, 768, 3072


@pytest.fixture(scope="module")
def article() -> Profile:
    return run.profile(run.default_workload(detect()), backends=NAMES, rounds=20, counters=True)


@pytest.fixture(scope="module")
def large() -> Profile:
    spec = MLPSpec(hidden_size=2048, intermediate_size=16384)
    work = msgspec.structs.replace(run.default_workload(detect()), spec=spec)
    return run.profile(work, backends=["eager", "triton"], rounds=20, counters=True)


def row(profile: Profile, name: str) -> Row:
    return next(one for one in profile.rows if one.backend == name)


@pytest.mark.parametrize("name", [name for name in NAMES if name in ROUND_TRIPS])
def test_every_backend_makes_the_round_trips_it_is_built_for(article: Profile, name: str) -> None:
    found = row(article, name)
    assert (found.status, found.reason) == ("ok", None)
    assert found.traffic.reasons.get("round_trips") is None
    assert found.traffic.round_trips == ROUND_TRIPS[name]
    assert all(step.kernels for step in found.traffic.steps)


@pytest.mark.parametrize("name", ROLES_KNOWN)
def test_the_ledger_derives_the_bytes_that_the_kernels_roles_imply(article: Profile, name: str) -> None:
    found = row(article, name)
    by_roles = bench("bytes_by_role").traffic(article.workload, found.kernels).derived_bytes
    assert found.traffic.derived_bytes == by_roles


def test_packed_moves_as_many_intermediate_bytes_as_triton_in_fewer_round_trips(article: Profile) -> None:
    packed, apart = row(article, "packed").traffic, row(article, "triton").traffic
    assert packed.intermediate_bytes == apart.intermediate_bytes == 2 * 6 * M * H


@pytest.mark.parametrize("name", GRAPHS)
def test_a_cuda_graphs_ledger_is_that_of_its_capture(article: Profile, name: str) -> None:
    found = row(article, name).traffic
    assert found.captured
    assert found.round_trips == GRAPHS[name], found.reasons


def test_a_rate_is_below_its_ceiling_or_explained(article: Profile) -> None:
    assert article.ceilings is not None
    assert max(one.flops_per_second for one in article.ceilings.products) <= article.device.peaks.flops_16bit
    for one in article.rows:
        assert not [note for note in one.notes if "measurement fault" in note], one.backend
        assert all(step.limit_us is not None for step in one.traffic.steps), one.backend


def test_training_is_counted_too() -> None:
    work = msgspec.structs.replace(run.default_workload(detect()), mode="training", batch=8)
    profile = run.profile(work, backends=["eager", "compile", "liger", "triton", "packed"], rounds=20)
    for one in profile.rows:
        assert one.traffic.round_trips is not None, (one.backend, one.traffic.reasons)
        assert sum(value.saved for value in one.traffic.intermediates) >= 2
    assert row(profile, "eager").traffic.round_trips == 10


counted = pytest.mark.skipif(nsight_compute.find() is None, reason="Nsight Compute is not installed")


def may_read(profile: Profile) -> None:
    reason = profile.rows[0].traffic.reasons.get("measured_bytes")
    if reason == nsight_compute.NOT_PERMITTED:
        pytest.skip(reason)


@counted
def test_measured_bytes_are_derived_ones_where_nothing_fits_into_the_l2(large: Profile) -> None:
    may_read(large)
    for one in large.rows:
        found = one.traffic
        for step in found.steps:
            assert step.measured_read_bytes is not None, (one.backend, step.op)
            assert step.measured_write_bytes is not None, (one.backend, step.op)
            if step.flops is None:  # a matrix product may read its operands again, and then the row says so
                measured = step.measured_read_bytes + step.measured_write_bytes
                assert measured == pytest.approx(step.bytes, rel=0.05), (one.backend, step.op)
        if abs(found.measured_bytes - found.derived_bytes) > 0.05 * found.derived_bytes:
            assert found.explained is not None, one.backend
            assert "operands are read again" in found.explained, one.backend


@counted
def test_a_difference_is_explained_where_the_l2_holds_what_is_read_back(article: Profile) -> None:
    may_read(article)
    for one in article.rows:
        found = one.traffic
        if one.backend in GRAPHS:  # the driver copies their input or output, which no counter sees
            assert "Nsight Compute counts kernels" in found.reasons["measured_bytes"]
            continue
        assert found.measured_bytes is not None, (one.backend, found.reasons)
        if abs(found.measured_bytes - found.derived_bytes) > 0.05 * found.derived_bytes:
            assert found.explained is not None, one.backend


# ---- launches --------------------------------------------------------------------------------------------------------


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def test_launches_of_third_parties_and_of_our_fast_path_are_read_from_their_code() -> None:
    from mlpfusion_kernels import act_mul

    x, up, out = (torch.randn(64, 256, device="cuda") for _ in range(3))

    def call() -> torch.Tensor:
        scale[(16,)](x, out, x.numel(), BLOCK=1024)
        return act_mul(out, up, "silu")

    call()
    found = collect.collect(call, {"x": x, "up": up})
    assert [(launch.op, launch.source, launch.unknown) for launch in found.launches] == [
        ("scale", "triton", None),
        ("act_mul_flat_kernel", "triton", None),
    ]
    assert [[len(launch.reads), len(launch.writes)] for launch in found.launches] == [[1, 1], [2, 1]]


def test_the_launch_inside_our_operator_is_seen_once() -> None:
    made = reference.make_case(run.default_workload(device.detect()), torch.device("cuda"), seed=0, tokens=64)
    step = reference.step(backend.load("triton").bind(made.mlp), made)
    for _ in range(3):
        step()
    found = collect.collect(step, collect.names(made))
    assert [launch.op for launch in found.launches] == ["aten::mm", "aten::mm", "act_mul_flat_kernel", "aten::mm"]
    assert found.faults == ()
