"""Kernels of two calls, paired: by role, then by name, then by their work; each is in one pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.kernel_pairs import DOWN, EAGER, FUSED, GATE, UP, changes, kernels
from support.timeline import GELU, GEMM, MUL, SPLIT_K

from mlpfusion.records.profile import Kernel
from mlpfusion.trace.diff.pairs import pair
from mlpfusion.trace.names.decode import decode

OTHER_GEMM = "nvjet_sm90_tst_192x128_64x5_1x2_v_bz_coopB_NNT"


def test_roles_pair_before_the_order() -> None:
    reordered = [(GEMM, GATE), (OTHER_GEMM, UP), (GELU, "activation"), (MUL, "mul"), (GEMM, DOWN)]
    found = pair(kernels(EAGER), kernels(reordered))
    assert {each.role: each.change for each in found} == {
        GATE: "same", "activation": "same", UP: "changed", "mul": "same", DOWN: "same",
    }  # fmt: skip
    what = {change.field: (change.a, change.b) for each in found for change in each.changes}
    assert what == {
        "tile": ("128x256x64", "128x192x64"),
        "layout": ("tn", "nn"),
        "stages": ("4", "5"),
        "not established": ("h coopA", "v coopB"),
    }


def test_a_name_with_equal_fields_is_still_changed() -> None:
    found = pair(kernels([("my_kernel_a", "act_mul")]), kernels([("my_kernel_b", "act_mul")]))
    assert [(each.change, [change.field for change in each.changes]) for each in found] == [("changed", ["name"])]


def test_fills_are_the_same_wherever_the_profiler_saw_their_memory() -> None:
    pairs = pair(kernels([("Memset (Device)", "memset")]), kernels([("Memset (Unknown)", "memset")]))
    assert changes(pairs) == [("same", "memset")]
    assert pairs[0].changes == ()


def test_a_split_k_reduction_is_not_a_product() -> None:
    found = pair(kernels([(GEMM, DOWN)]), kernels([(OTHER_GEMM, DOWN), (SPLIT_K, DOWN)]))
    assert changes(found) == [("changed", DOWN), ("new", DOWN)]


def test_kernels_without_a_role_pair_by_name_then_by_work() -> None:
    unrolled = MUL.replace("vectorized", "unrolled")
    found = pair(
        kernels([(GELU, "other"), (MUL, "other"), ("a", "other")]), kernels([(unrolled, "other"), (GELU, "other")])
    )
    assert {(each.a.name if each.a else None, each.b.name if each.b else None) for each in found} >= {(GELU, GELU)}
    assert sum(each.change == "same" for each in found) == 1


def test_time_differences_of_kernels() -> None:
    found = pair(kernels(EAGER, 10.0), kernels(EAGER, 12.5))
    assert {each.difference_us for each in found} == {2.5}
    untimed = pair(kernels(EAGER), [Kernel(name=GEMM, role=GATE, decoded=decode(GEMM), time_us=None)])  # type: ignore[arg-type]
    assert untimed[0].difference_us is None


NAMES = st.sampled_from([(GEMM, GATE), (GEMM, "other"), (GELU, "activation"), (MUL, "other"), (FUSED, "act_mul"),
                         (SPLIT_K, DOWN), ("Memset (Device)", "memset"), ("x", "other")])  # fmt: skip


@given(st.lists(NAMES, max_size=12), st.lists(NAMES, max_size=12))
def test_every_kernel_is_in_one_pair(a: list[tuple[str, str]], b: list[tuple[str, str]]) -> None:
    ours, theirs = kernels(a), kernels(b)
    found = pair(ours, theirs)
    assert sorted(id(each.a) for each in found if each.a) == sorted(map(id, ours))
    assert sorted(id(each.b) for each in found if each.b) == sorted(map(id, theirs))
    for each in found:
        names = (each.a and each.a.name, each.b and each.b.name)
        assert (each.change == "same") == (names[0] == names[1])
        assert (each.change == "gone") == (each.b is None)
        assert (each.change == "new") == (each.a is None)
        assert bool(each.changes) == (each.change == "changed")


def test_thousands_of_kernels_are_paired_in_time() -> None:
    layers = kernels(EAGER * 1000)
    found = pair(layers, kernels(EAGER * 1000))
    assert {each.change for each in found} == {"same"}
    shifted = pair(layers, kernels([("first", "other"), *EAGER * 1000]))
    assert sum(each.change == "new" for each in shifted) == 1
    nameless = kernels([(f"k{number % 7}", "other") for number in range(20_000)])
    moved = pair(nameless, [*kernels([("first", "other")]), *nameless])
    assert sum(each.change == "same" for each in moved) == 20_000
