"""Roles of kernels: from the order of the matrix products and the names, not from the order gate, up, activation."""

from __future__ import annotations

import pytest

from mlpfusion.trace.analysis.roles import roles
from mlpfusion.trace.calls.call import Work
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.read.kineto import Event

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true>(int)"
GELU = "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(int)::{lambda(float)#1}>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)"  # noqa: E501
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
GATED = "kernel_cutlass_kernel_quackgemm_actGemmGatedSm90"
# As quack 0.6.5 names them, with the functions of its own library: the first was recorded on an H200.
MODS = "kernel_cutlass_kernel_quackepiloguefrontendGemmMod_{}_24f7483f53f03859_{}_{}_sm{}_object_at__TiledMMA_ThrLayout"
GATED_MOD = MODS.format("linear_act_epi", "g", "none", 9)
SET, COPY = "Memset (Device)", "Memcpy DtoD (Device -> Device)"
# Kernels that only move: into a graph's buffers, into another layout, and into another dtype.
INTO_GRAPH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, at::native::Copy<c10::BFloat16, {}> >(int)"  # noqa: E501
DENSE = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>(int)>(int)"  # noqa: E501
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"  # noqa: E501
TO_FLOAT = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>(int)"  # noqa: E501
GATE, UP, DOWN = "gate_gemm", "up_gemm", "down_gemm"


def given(
    *names: str,
    backward: int = 0,
    owners: tuple[str, ...] = (),
    streams: tuple[int, ...] = (),
) -> list[str]:
    """The roles of a call with these kernels in launch order, the last `backward` of them the backward's."""
    work = []
    for index, name in enumerate(names):
        event = Event(
            name=name,
            category="kernel",
            start_ns=10 * index,
            duration_ns=5,
            pid=0,
            tid=streams[index] if streams else 7,
        )
        launch = Event(name="cudaLaunchKernel", category="api", start_ns=10 * index, duration_ns=1, pid=0, tid=1)
        around = ()
        if owners:
            number = sum(owners[i] != owners[i - 1] for i in range(1, index + 1))  # one operator has several kernels
            around = (Event(name=owners[index], category="op", start_ns=number, duration_ns=9, pid=0, tid=1),)
        late = index >= len(names) - backward
        work.append(Work(event=event, launch=launch, owners=around, backward=late))
    return list(roles(work, [decode(name) for name in names]))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((GEMM, GELU, GEMM, MUL, GEMM), (GATE, "activation", UP, "mul", DOWN)),
        ((GEMM, GEMM, GELU, MUL, GEMM), (GATE, UP, "activation", "mul", DOWN)),
        ((GEMM, GEMM, FUSED, GEMM), (GATE, UP, "act_mul", DOWN)),
        ((SET, GEMM, SET, GEMM, FUSED, GEMM), ("memset", GATE, "memset", UP, "act_mul", DOWN)),
        ((GEMM, FUSED, GEMM), ("gate_up_gemm", "act_mul", DOWN)),
        ((GATED, GEMM), ("gate_up_gemm", DOWN)),
        ((GATED_MOD, GEMM), ("gate_up_gemm", DOWN)),
        ((GATED_MOD, GEMM, SPLIT_K), ("gate_up_gemm", DOWN, DOWN)),
        ((COPY, GATED_MOD, GATED_MOD.replace("act_epi", "epi").replace("_g_", "__")), ("memcpy", "gate_up_gemm", DOWN)),
        (("gate_up_hopper_kernel", GEMM), ("gate_up_gemm", DOWN)),
        (("gate_up_decode_kernel", "down_decode_kernel"), ("gate_up_gemm", DOWN)),
        ((GEMM, GELU, GEMM), ("other", "other", "other")),  # two products and no gate: an MLP that is not gated
        ((GEMM, SPLIT_K, GELU, GEMM, MUL, GEMM, SPLIT_K), (GATE, GATE, "activation", UP, "mul", DOWN, DOWN)),
        ((COPY, GEMM, GELU, GEMM, MUL, GEMM), ("memcpy", GATE, "activation", UP, "mul", DOWN)),
        ((GEMM,), ("other",)),
        ((GEMM,) * 4, ("other",) * 4),
        ((), ()),
    ],
)
def test_roles_follow_from_the_products(names: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert given(*names) == list(expected)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (INTO_GRAPH.format("c10::BFloat16"), "memcpy"),
        (INTO_GRAPH.format("float"), "other"),
        (DENSE, "memcpy"),
        (CAST, "other"),
        (TO_FLOAT, "other"),
        ("triton_poi_fused_clone_0", "other"),  # named by what it was fused of, which may be more
        ("void flip_copy<float>(float*)", "other"),
    ],
)
def test_a_kernel_that_copies_and_keeps_the_dtype_is_a_copy(name: str, role: str) -> None:
    assert given(name) == [role]
    assert given(name, GEMM, GELU, GEMM, MUL, GEMM) == [role, GATE, "activation", UP, "mul", DOWN]


@pytest.mark.parametrize("major", [8, 9, 10, 12])
@pytest.mark.parametrize("operands", ["none", "row", "row_col_scalar", "c_row_alphaConst"])
@pytest.mark.parametrize(
    ("function", "pairs", "epilogue"),
    [
        ("linear_act_epi", "g", "gated_activation"),
        ("norm_act_epi", "g", "gated_activation"),
        ("rstd_gated_preact_epi", "g", "gated_activation"),
        ("norm_swiglu_mod", "g", "gated_activation"),
        ("my_geglu", "g", "gated_activation"),
        ("linear_act_epi", "", "activation"),
        ("ln_affine_act_epi", "", "activation"),
        ("dgated_epi", "p", "gated_activation_backward"),
        ("dgated_rstd_preact_epi", "p", "gated_activation_backward"),
        ("dact_epi", "", "activation_backward"),
        ("dact_ln_stats_epi", "", "activation_backward"),
        ("linear_epi", "", None),
        ("rope_epi", "g", None),  # pairs of columns too, and no gate
        ("lse_partial_epi", "", None),
        ("fact_epi", "g", None),
        ("exact_epi", "", None),
    ],
)
def test_an_epilogue_in_the_name_of_a_class_made_by_quack(
    function: str, pairs: str, epilogue: str | None, operands: str, major: int
) -> None:
    name = MODS.format(function, pairs, operands, major)
    found = decode(name)
    assert (found.library, found.kind, found.arch) == ("quack", "gemm", f"sm{major}0")
    assert found.epilogue == found.fused_ops == (() if epilogue is None else (epilogue,))
    gated = epilogue == "gated_activation"
    assert given(name, GEMM) == (["gate_up_gemm", DOWN] if gated else ["other", "other"])


@pytest.mark.parametrize(
    ("name", "epilogue"),
    [
        ("GemmGatedSm90", "gated_activation"),
        ("GemmActSm100", "activation"),
        ("GemmDGatedSm90", "gated_activation_backward"),
        ("GemmDActSm90", "activation_backward"),
    ],
)
def test_an_epilogue_in_the_name_of_a_class_that_quack_wrote(name: str, epilogue: str) -> None:
    assert decode(f"kernel_cutlass_kernel_quackgemm_act{name}_object_at__TiledMMA").epilogue == (epilogue,)


def test_what_runs_behind_the_last_product_has_no_role() -> None:
    assert given(GEMM, GELU, GEMM, MUL, GEMM, GELU) == [GATE, "activation", UP, "mul", DOWN, "other"]


def test_backward_kernels_have_no_role() -> None:
    assert given(GEMM, GELU, GEMM, MUL, GEMM, GEMM, MUL, backward=2)[5:] == ["other", "other"]


def test_kernels_of_one_operator_are_one_product() -> None:
    owners = ("aten::mm", "aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm")
    assert given("helper", GEMM, GELU, GEMM, MUL, GEMM, owners=owners)[:2] == [GATE, GATE]


@pytest.mark.parametrize("order", [(GEMM, GELU, GEMM, MUL, GEMM), (GEMM, GEMM, GELU, MUL, GEMM)])
@pytest.mark.parametrize("beside", range(3))
def test_products_of_two_streams_are_no_pair_and_none_of_them_is_packed(order: tuple[str, ...], beside: int) -> None:
    """What the activation is multiplied by may be the other stream's: nothing says which product is which."""
    products = [place for place, name in enumerate(order) if name == GEMM]
    streams = tuple(8 if place == products[beside] else 7 for place in range(len(order)))
    found = given(*order, streams=streams)
    assert "gate_up_gemm" not in found
    assert GATE not in found
    assert UP not in found
