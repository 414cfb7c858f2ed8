"""Alignment of a ledger's launches with the device work of a trace, written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.traffic import Access, DeviceWork, Launch, Ledger, Run
from mlpfusion.traffic.alignment import align

MM, GELU, COPY = "aten::mm", "aten::gelu", "aten::copy_"
NVJET = "nvjet_sm90_tst_256x128"


def ledger(*launches, captured=False):
    made = [launch if isinstance(launch, Launch) else Launch(op=launch, source="operator") for launch in launches]
    return Ledger(launches=tuple(made), buffers=(), captured=captured)


def kernel(name, source="triton", **more):
    return Launch(op=name, source=source, kernel=name, **more)


def work(*items):
    made = []
    for index, item in enumerate(items):
        name, kind, ops, *replayed = item
        made.append(DeviceWork(name=name, kind=kind, kernel=index, ops=tuple(ops), replayed=bool(replayed)))
    return made


def test_kernels_of_one_operator_belong_together():
    found = align(
        ledger(MM, MM),
        work(
            ("Memset", "memset", [(MM, 0)]),
            (NVJET, "gemm", [(MM, 0), ("aten::linear", 1)]),
            ("Memset", "memset", [(MM, 2)]),
            (NVJET, "gemm", [(MM, 2)]),
            ("splitKreduce", "other", [(MM, 2)]),
        ),
    )
    assert found.kernels == ((0, 1), (2, 3, 4))
    assert found.missing == ()


def test_an_operator_is_found_around_the_one_that_launches():
    found = align(ledger("aten::clone"), work(("Memcpy DtoD", "memcpy", [(COPY, 1), ("aten::clone", 0)])))
    assert (found.kernels, found.missing) == (((0,),), ())


def test_kernels_are_matched_by_name():
    launches = ledger(MM, kernel("_geglu_tanh_forward_kernel"), kernel("cpp_fused_gelu_mul_0", "inductor"), MM)
    found = align(
        launches,
        work(
            (NVJET, "gemm", [(MM, 0)]),
            ("_geglu_tanh_forward_kernel", "elementwise", []),
            ("graph_3_cpp_fused_gelu_mul_0", "elementwise", []),
            (NVJET, "gemm", [(MM, 1)]),
        ),
    )
    assert (found.kernels, found.missing) == (((0,), (1,), (2,), (3,)), ())


def test_a_kernel_that_the_ledger_missed_is_named_and_the_rest_still_matches():
    found = align(
        ledger(MM, MM),
        work((NVJET, "gemm", [(MM, 0)]), ("mystery", "elementwise", []), (NVJET, "gemm", [(MM, 1)])),
    )
    assert found.kernels == ((0,), (2,))
    assert found.missing == ("a kernel missing from the ledger: mystery",)


def test_a_launch_that_the_trace_has_not_is_named():
    found = align(ledger(MM, GELU, MM), work((NVJET, "gemm", [(MM, 0)]), (NVJET, "gemm", [(MM, 1)])))
    assert found.kernels == ((0,), (), (1,))
    assert found.missing == ("a launch missing from the trace: aten::gelu",)


def test_compiled_kernels_beside_a_ledger_without_any_are_explained():
    found = align(
        ledger(MM, GELU), work((NVJET, "gemm", [(MM, 0)]), ("triton_poi_fused_gelu_mul_0", "elementwise", []))
    )
    assert "was not compiled" in found.missing[0]


def test_a_fill_without_launch_is_other_and_a_copy_is_not():
    fill, copy = ("Memset", "memset", []), ("Memcpy DtoD", "memcpy", [])
    assert align(ledger(MM), work(fill, (NVJET, "gemm", [(MM, 0)]))).other == ("Memset (memset)",)
    assert align(ledger(MM), work(copy, (NVJET, "gemm", [(MM, 0)]))).missing != ()


def test_the_replay_of_a_captured_ledger_is_compared_by_kind_and_its_copies_are_other():
    launches = ledger(MM, MM, kernel("triton_poi_fused_gelu_mul_0", "inductor"), MM, captured=True)
    replay = [
        ("Memcpy DtoD", "memcpy", [(COPY, 0)]),
        (NVJET, "gemm", [], True),
        ("Memset", "memset", [], True),
        (NVJET, "gemm", [], True),
        ("triton_poi_fused_gelu_mul_0", "elementwise", [], True),
        (NVJET, "gemm", [], True),
    ]
    found = align(launches, work(*replay))
    assert found.kernels == ((1,), (3,), (4,), (5,))
    assert found.missing == ()
    assert len(found.other) == 2
    assert align(ledger(MM, MM, captured=True), work(*replay)).missing != ()


def fill(size):
    run = Run(start=0, length=size, pitch=size, pieces=1)
    return Launch(op="aten::fill_", source="operator", writes=(Access(buffer=0, runs=(run,)),))


def test_the_generators_numbers_that_a_capture_sets_are_no_launch_of_the_call():
    replay = work((NVJET, "gemm", [], True), (NVJET, "gemm", [], True))
    found = align(ledger(fill(8), fill(8), MM, MM, captured=True), replay)
    assert (found.kernels, found.missing) == (((), (), (0,), (1,)), ())
    assert align(ledger(fill(8), MM, MM), replay).missing != ()  # not captured
    assert align(ledger(fill(64), MM, MM, captured=True), replay).missing != ()


@pytest.mark.parametrize(
    "launch", [kernel("k", unknown="no code"), Launch(op=MM, source="operator", unknown="no code")]
)
def test_what_is_not_trusted_is_missing(launch):
    found = align(ledger(launch), work(("k", "other", [(MM, 0)])))
    assert found.kernels == ((0,),)
    assert "no code" in found.missing[0]


def test_several_kernels_of_a_third_party_operator_may_pass_values():
    inside = work(
        ("Memset", "memset", [("mine::mlp", 0)]),
        ("aten::gelu", "elementwise", [(GELU, 1), ("mine::mlp", 0)]),
        ("aten::mul", "elementwise", [("aten::mul", 2), ("mine::mlp", 0)]),
    )
    found = align(ledger("mine::mlp"), inside)
    assert found.missing == ("mine::mlp has 2 kernels, and the values passed between them were not observed",)
    assert align(ledger("mine::mlp"), inside[:2]).missing == ()


def test_on_a_cpu_a_custom_operator_stands_for_what_runs_inside_it():
    inside = {"inside": ("mine::act_mul_", 1)}
    launches = ledger(
        MM,
        Launch(op=GELU, source="operator", **inside),
        Launch(op=COPY, source="operator", **inside),
        Launch(op=GELU, source="operator", inside=("mine::act_mul_", 2)),
        MM,
    )
    shown = [
        (name, "other", [(name, index)]) for index, name in enumerate((MM, "mine::act_mul_", "mine::act_mul_", MM))
    ]
    found = align(launches, work(*shown))
    assert (found.kernels, found.missing) == (((0,), (1,), (1,), (2,), (3,)), ())
    assert align(launches, work(*shown[:1], *shown[2:])).missing != ()  # one call of it is missing


def test_on_a_cpu_an_operator_that_cannot_be_watched_is_not_trusted():
    found = align(ledger("mine::mlp"), work(("mine::mlp", "other", [("mine::mlp", 0)])))
    assert found.missing == ("mine::mlp: what it runs inside was not observed",)


def test_faults_of_the_ledger_are_passed_on():
    assert align(Ledger(launches=(), buffers=(), faults=("compiled anew",)), []).missing == ("compiled anew",)


def test_too_much_is_refused_with_the_numbers():
    launches = ledger(*[MM] * 3000)
    found = align(launches, work(*[(NVJET, "gemm", [(MM, index)]) for index in range(3000)]))
    assert found.missing == ("3000 launches and 3000 pieces of device work are too many to compare",)


OPS = st.lists(st.sampled_from([MM, GELU, COPY]), max_size=8)


@given(OPS)
def test_the_same_sequence_always_aligns(names):
    found = align(ledger(*names), work(*[(name, "other", [(name, index)]) for index, name in enumerate(names)]))
    assert found.kernels == tuple((index,) for index in range(len(names)))
    assert found.missing == ()


@given(OPS, OPS)
def test_different_sequences_never_pass_for_the_same(a, b):
    found = align(ledger(*a), work(*[(name, "other", [(name, index)]) for index, name in enumerate(b)]))
    assert (not found.missing) == (a == b)
    matched = [index for kernels in found.kernels for index in kernels]
    assert matched == sorted(set(matched))
