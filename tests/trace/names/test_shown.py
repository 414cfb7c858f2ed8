"""Names as they are shown: the function alone, never a condition of its return type, and different ones told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_by_one import one_by_one

from mlpfusion.trace.names.shown import shown, told_apart

DATA = Path(__file__).parents[2] / "data"
NAMES = [line.split("\t")[0] for line in (DATA / "library_names.tsv").read_text().splitlines()[1:]]
RMS = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi{}ELi{}ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib"


@one_by_one(NAMES)
def test_a_function_is_all_that_is_shown(name: str) -> None:
    text = shown(name)
    assert text
    assert not any(word in text for word in ("enable_if", "void ", "(anonymous", "_Z", ".kd", "::type"))
    assert text.count("<") == text.count("<…>")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("void (anonymous namespace)::store_kvcache<1024, long>(void*)", "store_kvcache<…>"),
        ("void at::native::<unnamed>::f<int>(int *)", "at::native::f<…>"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x4_nt>(P)", "cutlass_80_simt_sgemm_128x64_8x4_nt"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FwdSm90<int> > >(P)", "flash::FwdSm90<…>"),
        ("attn_fwd.kd", "attn_fwd"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("Memset (Unknown)", "Memset (Unknown)"),
        ("Activity Buffer Request", "Activity Buffer Request"),
        ("autograd::engine::evaluate_function: MulBackward0", "autograd::engine::evaluate_function: MulBackward0"),
        ("two\nlines", "two lines"),
        ("", ""),
    ],
)  # fmt: skip
def test_shows(name: str, text: str) -> None:
    assert shown(name) == text


def test_names_that_look_alike_have_the_arguments_that_differ() -> None:
    names = [RMS.format(64, 8), RMS.format(256, 16)]
    assert list(told_apart(names).values()) == [
        "aiter::add_rmsnorm_quant_kernel<64, …>",
        "aiter::add_rmsnorm_quant_kernel<256, …>",
    ]
    assert set(told_apart(names, {names[0]: "one", names[1]: "other"}).values()) == {
        "aiter::add_rmsnorm_quant_kernel<…>"
    }


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from(["float", "c10::Half"])), unique=True, max_size=6))
def test_any_arguments_tell_names_apart(arguments: list[tuple[int, str]]) -> None:
    names = [f"void their::kernel<{number}, {dtype}>({dtype}*)" for number, dtype in arguments]
    assert len(set(told_apart(names).values())) == len(names)


@given(st.lists(st.text(max_size=80)))
def test_any_names_are_shown(names: list[str]) -> None:
    assert set(told_apart(names)) == set(names)
