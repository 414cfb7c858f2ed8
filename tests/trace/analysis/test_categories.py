"""Every piece of work is in one category, and the times of the categories are those of the raw events."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw import launched, step, text
from support.timeline import GELU, GEMM, MUL, SPLIT_K

from mlpfusion.records.breakdown import CATEGORIES
from mlpfusion.records.profile import Decoded
from mlpfusion.records.traffic import WorkKind
from mlpfusion.trace.analysis.categories import category_of
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.names.decode import decode

DATA = Path(__file__).parents[2] / "data"

NAMES = [
    (GEMM, "gemm"),
    ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SN", "gemm"),
    (SPLIT_K, "gemm"),
    ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false> >(int)", "attention"),
    ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64> >(int)", "attention"),
    ("void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128> >(int)", "attention"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ("Memcpy HtoD (Pageable -> Device)", "copies"),
    ("Memset (Device)", "copies"),
    ("triton_poi_fused__to_copy_1", "copies"),
    ("triton_poi_fused__to_copy_add_1", "elementwise"),
    (GELU, "elementwise"),
    (MUL, "elementwise"),
    ("triton_poi_fused_0", "elementwise"),
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)", "normalisation"),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "normalisation"),
    ("triton_per_fused_native_layer_norm_native_layer_norm_backward_3", "normalisation"),
    ("triton_red_fused_mean_2", "reduction"),
    ("triton_per_fused__softmax_1", "reduction"),
    ("void (anonymous namespace)::my_kernel<float>(float*)", "other"),
]


@pytest.mark.parametrize(("name", "category"), NAMES)
def test_a_kernel_is_in_the_category_of_what_it_computes(name: str, category: str) -> None:
    assert category_of(decode(name)) == category


OPERATORS = st.lists(st.sampled_from(["mul", "copy", "rsqrt", "mean", "attention", "layer_norm", "view", "made_up"]))


@given(st.sampled_from(get_args(WorkKind)), OPERATORS)
def test_every_kind_with_any_operators_has_one_category_that_its_kind_allows(kind: WorkKind, fused: list[str]) -> None:
    found = category_of(Decoded(kind=kind, fused_ops=tuple(fused)))
    fixed = {"gemm": "gemm", "attention": "attention", "communication": "communication", "memcpy": "copies",
             "memset": "copies"}  # fmt: skip
    assert found == fixed[kind] if kind in fixed else found in CATEGORIES


def test_every_known_name_has_a_category() -> None:
    lines = (DATA / "kernel_names.tsv").read_text().splitlines() + (DATA / "library_names.tsv").read_text().splitlines()
    counts = Counter(category_of(decode(line.split("\t")[0])) for line in lines)
    assert set(counts) == set(CATEGORIES)
    assert counts["other"] < len(lines) / 5


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 300)), min_size=1, max_size=12))
def test_times_and_shares_are_those_of_the_raw_events(work: list[tuple[tuple[str, str], int]]) -> None:
    made = []
    for call in range(3):
        start = 100_000 * (call + 1)
        made.append(step(call, start, 90_000))
        for number, ((name, _), length) in enumerate(work):
            made += launched(name, start + 100 * number, start + 1000 * (number + 1), length, 100 * call + number + 1)
    found = read(text(made)).breakdown
    times: dict[str, int] = defaultdict(int)
    for (_, category), length in work:
        times[category] += length
    assert found is not None
    assert {one.category: one.us for one in found.categories} == pytest.approx(times)
    assert {one.category: one.count for one in found.categories} == Counter(category for (_, category), _ in work)
    assert sum(one.share for one in found.categories) == pytest.approx(1)
    assert found.kernel_us == pytest.approx(sum(times.values()))
    assert not found.overlapping
    assert [one.us for one in found.categories] == sorted((one.us for one in found.categories), reverse=True)


def test_kernels_that_run_at_the_same_time_are_said_to() -> None:
    made = []
    for call in range(3):
        start = 10_000 * (call + 1)
        first, second = (launched(GEMM, start + 10 * at, start + 500, 400, 10 * call + at + 1) for at in (0, 1))
        second[1]["tid"] = 8
        made += [step(call, start, 9000), *first, *second]
    found = read(text(made)).breakdown
    assert found is not None
    assert (found.kernel_us, found.overlapping) == (800, True)
