"""Findings about a call's device work: copies, fills, small kernels, fusion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.findings_made import COMPILED, COPY, FUSED, every, said
from support.timeline import GEMM, MUL

if TYPE_CHECKING:
    from pathlib import Path


def test_a_hidden_copy_before_a_product_is_said(tmp_path: Path) -> None:
    copy = ("Memcpy DtoD (Device -> Device)", "aten::addmm")
    found = said(every(kernels=(copy, (GEMM, "aten::addmm"))), tmp_path)
    assert found["copy_before_gemm"].seen.startswith("1 device-to-device copy right before a matrix product, 5.0 µs")
    assert found["copy_before_gemm"].seen.endswith("1 inside addmm")
    assert "extra_copies" not in found  # said once
    after = said(every(kernels=((GEMM, "aten::mm"), copy)), tmp_path)
    assert "copy_before_gemm" not in after
    assert "extra_copies" in after


def test_a_fill_before_a_product_is_said(tmp_path: Path) -> None:
    fill = ("Memset (Device)", "aten::mm")
    assert "1 fill right" in said(every(kernels=(fill, (GEMM, "aten::mm"))), tmp_path)["memset_before_gemm"].seen
    assert "memset_before_gemm" not in said(every(kernels=((GEMM, "aten::mm"), fill)), tmp_path)


def test_a_fill_inside_a_graph_is_no_launch(tmp_path: Path) -> None:
    def replay(made: Any, start: int, index: int) -> None:
        made.api("cudaGraphLaunch", start + 1, correlation=100 + index)
        made.device("Memset (Device)", start + 20, 2, 100 + index).device(GEMM, start + 30, 5, 100 + index)

    inside = said(every(kernels=(), each=replay), tmp_path)["memset_before_gemm"].do
    assert inside == "count it with its product; the CUDA graph replays it without a host launch"
    loose = said(every(kernels=(("Memset (Device)", "aten::mm"), (GEMM, "aten::mm"))), tmp_path)["memset_before_gemm"]
    assert loose.do.endswith("one more host launch, which a CUDA graph removes")


def test_occupancy_queries_are_said(tmp_path: Path) -> None:
    name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    made = every(each=lambda made, start, index: made.api(name, start + 1))
    assert said(made, tmp_path)["occupancy_query"].seen == "1 occupancy query a call"
    assert "occupancy_query" not in said(every(), tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"), [("Memcpy HtoD (Pageable -> Device)", "host_to_device"),
                           ("Memcpy DtoH (Device -> Pinned)", "device_to_host")],
)  # fmt: skip
def test_traffic_with_the_host_is_said(tmp_path: Path, name: str, expected: str) -> None:
    found = said(every(kernels=((GEMM, "aten::mm"), (name, "aten::copy_"))), tmp_path)
    assert found[expected].seen.startswith(f"1 {name[7:11]} copy a call, 5.0 µs")
    assert ("pageable" in found[expected].seen) == ("Pageable" in name)
    before = every()
    before.launch(name, 500, 510, 5)
    assert expected not in said(before, tmp_path)


@pytest.mark.parametrize("kernel", [COPY, "triton_poi_fused__to_copy_view_0", "triton_poi_fused_clone_1"])
def test_kernels_that_only_copy_are_said(tmp_path: Path, kernel: str) -> None:
    found = said(every(kernels=((kernel, "aten::copy_"), (GEMM, "aten::mm"))), tmp_path)
    assert found["extra_copies"].seen == "1 kernel for copies or casts alone, 5.0 µs a call (1x aten::copy_)"
    assert "extra_copies" not in said(every(), tmp_path)
    assert "extra_copies" not in said(every(kernels=(("triton_poi_fused__to_copy_mul_0", "x"),)), tmp_path)


def test_what_compile_could_fuse_is_said(tmp_path: Path) -> None:
    found = said(every(), tmp_path)
    assert found["fusable_kernels"].seen == (
        "2 of 5 kernels are PyTorch's own elementwise kernels and reductions, 10.0 µs a call "
        "(40% of the device's time): 1x gelu, 1x mul"
    )
    assert "already_fused" not in found


def test_that_nothing_is_left_to_fuse_is_said(tmp_path: Path) -> None:
    found = said(every(kernels=COMPILED), tmp_path)
    assert found["already_fused"].seen.endswith(f"fused already: {FUSED}")
    assert "fusable_kernels" not in found
    assert "already_fused" not in said(every(kernels=(("their_kernel", "x"),)), tmp_path)


@pytest.mark.parametrize(
    "kernels",
    [
        (("volta_sgemm_128x64_tn", "aten::mm"), (MUL, "aten::mul")),
        ((GEMM, "aten::mm"),),
        ((GEMM, "aten::mm"), ("triton_poi_fused_gelu_0", "x")),
        (("triton_tem_fused_mm_0", "x"),),
    ],
)
def test_where_nothing_is_fused_nothing_is_called_fused(tmp_path: Path, kernels: Any) -> None:
    assert not {"already_fused", "fusable_kernels"} & set(said(every(kernels=kernels), tmp_path))


def test_many_small_kernels_are_said(tmp_path: Path) -> None:
    def small(count: int, length: float) -> Any:
        def add(made: Any, start: int, index: int) -> None:
            for number in range(count):
                made.launch(MUL, start + 55 + number, start + 150 + 20 * number, length)

        return every(each=add)

    assert "17 of 17 kernels run for less than 10 µs" in said(small(12, 3), tmp_path)["many_small_kernels"].seen
    assert "many_small_kernels" not in said(small(12, 15), tmp_path)
    assert "many_small_kernels" not in said(small(3, 3), tmp_path)
