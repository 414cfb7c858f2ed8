"""Roles in whole models: a gated MLP by order, shapes and its activation, on one stream; q, k and v are no MLP."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.timeline import GELU, GEMM, MUL

from mlpfusion.trace.analysis.products import Shape, shape_of
from mlpfusion.trace.analysis.roles import roles
from mlpfusion.trace.calls.call import Work
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.read.kineto import Event

FUSED = "triton_poi_fused_mul_silu_3"
NORM = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_4"
ROPE = "triton_poi_fused_add_cat_mul_neg_2"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::half_t> >(int)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
TANH = "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(int)::{lambda(float)#1}>(int)"
SIGMOID = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(int)::{lambda(float)#1}>(int)"
)
SILU_AND_MUL = (
    "void vllm::act_and_mul_kernel<c10::Half, &(c10::Half vllm::silu_kernel<c10::Half>(c10::Half)), true>(int)"
)
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MLP = ("gate_gemm", "up_gemm", "act_mul", "down_gemm")
PACKED = ("gate_up_gemm", "act_mul", "down_gemm")


class Ran(NamedTuple):
    """A kernel, the sizes m, k, n of the product that it makes, if any, and its stream."""

    name: str
    sizes: tuple[int, int, int] | None = None
    stream: int = 7
    op: str = "aten::mm"


def given_roles(*ran: Ran | str) -> list[str]:
    work = []
    for index, one in enumerate(Ran(each) if isinstance(each, str) else each for each in ran):
        launch = Event("cudaLaunchKernel", "api", 10 * index + 1, 1, 0, 1)
        owners = ()
        if one.sizes:
            m, k, n = one.sizes
            dims = {
                "aten::mm": ((m, k), (k, n)),
                "aten::addmm": ((n,), (m, k), (k, n), (), ()),
                "aten::linear": ((2, m // 2, k), (n, k), ()),
                "aten::bmm": ((4, m, k), (4, k, n)),
            }[one.op]
            owners = (Event(one.op, "op", 10 * index, 9, 0, 1, None, dims),)
        event = Event(one.name, "kernel", 10 * index + 2, 5, 0, one.stream)
        work.append(Work(event=event, launch=launch, owners=owners, backward=False))
    return list(roles(work, [decode(item.event.name) for item in work]))


def gemm(m: int, k: int, n: int, op: str = "aten::mm") -> Ran:
    return Ran(GEMM, (m, k, n), op=op)


def attention(sizes: bool) -> list[Ran | str]:
    product = gemm(64, 32, 32) if sizes else Ran(GEMM)
    return [NORM, product, product, product, ROPE, FLASH, product]


@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 6])
@pytest.mark.parametrize("op", ["aten::mm", "aten::addmm", "aten::linear"])
def test_each_layer_of_a_model_has_its_mlp(layers: int, sizes: bool, op: str) -> None:
    mlp = (
        [gemm(64, 32, 96, op), gemm(64, 32, 96, op), FUSED, gemm(64, 96, 32, op)]
        if sizes
        else [GEMM, GEMM, FUSED, GEMM]
    )
    layer = [*attention(sizes), NORM, *mlp]
    assert given_roles(*layer * layers) == [*["other"] * 8, *MLP] * layers


@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("act", [FUSED, SILU_AND_MUL])
def test_a_layer_with_gate_and_up_in_one_product(act: str, sizes: bool) -> None:
    mlp = [gemm(64, 32, 192), act, gemm(64, 96, 32)] if sizes else [GEMM, act, GEMM]
    layer = [*attention(sizes), NORM, *mlp, REDUCE]
    assert given_roles(*layer * 2) == [*["other"] * 8, *PACKED, "other"] * 2


@pytest.mark.parametrize(
    "ran",
    [
        (GEMM, GEMM, GEMM),  # q, k, v alone
        (GEMM, GEMM, GEMM, ROPE, FLASH, GEMM),
        (GEMM, GEMM, GEMM, MUL, SOFTMAX, GEMM),
        (GEMM, GELU, GEMM),  # an MLP without a gate
        (GEMM, MUL, GEMM, GELU, GEMM),
        (gemm(8, 4, 16), GELU, MUL, gemm(8, 16, 4)),  # a GELU and a scale
        (gemm(8, 4, 16), MUL, TANH, MUL, gemm(8, 16, 4)),  # a GELU written out
        (GEMM, MUL, TANH, MUL, GEMM),
        (GEMM, SIGMOID, MUL, GEMM),
        (gemm(8, 4, 16), gemm(8, 4, 24), FUSED, gemm(8, 16, 4)),  # sizes of gate and up differ
        (gemm(8, 4, 16), gemm(8, 4, 16), FUSED, gemm(8, 24, 4)),  # down takes something else
        (gemm(8, 4, 16), gemm(8, 4, 16), FUSED, gemm(6, 16, 4)),
        (Ran(GEMM, (8, 4, 8), op="aten::bmm"), TANH, MUL, SOFTMAX, Ran(GEMM, (8, 8, 4), op="aten::bmm")),
        (Ran(GEMM), Ran(GEMM, stream=8), FUSED, Ran(GEMM)),  # on several streams their order is unknown
        (GEMM, GEMM, Ran(FUSED, stream=8), GEMM),
    ],
)
def test_what_is_no_gated_mlp_has_no_role(ran: tuple[Ran | str, ...]) -> None:
    found = given_roles(*ran)
    assert not {"gate_gemm", "up_gemm", "down_gemm", "act_mul"} & set(found[:2])


def test_an_mlp_on_a_stream_of_its_own_is_found_among_other_work() -> None:
    side = [Ran(name, stream=8) for name in (GEMM, GEMM, GEMM, REDUCE)]
    mlp = [GEMM, GEMM, FUSED, GEMM]
    mixed = [one for pair in zip(mlp, side, strict=True) for one in pair]
    assert given_roles(*mixed)[::2] == list(MLP)
    assert set(given_roles(*mixed)[1::2]) == {"other"}


@given(
    st.lists(st.sampled_from([GEMM, GELU, MUL, FUSED, NORM, ROPE, FLASH, SOFTMAX, REDUCE, "their_kernel"]), max_size=14)
)
def test_a_down_product_has_a_gate_before_it(names: list[str]) -> None:
    found = given_roles(*names)
    for at, role in enumerate(found):
        if role == "down_gemm":
            assert {"act_mul", "mul"} & set(found[:at]) or "their_kernel" in names
        if role in ("gate_gemm", "up_gemm"):
            assert "down_gemm" in found[at:]


@pytest.mark.parametrize(
    ("op", "dims", "shape"),
    [
        ("aten::mm", ((8, 4), (4, 16)), Shape(8, 4, 16)),
        ("aten::addmm", ((16,), (8, 4), (4, 16)), Shape(8, 4, 16)),
        ("aten::linear", ((2, 4, 4), (16, 4)), Shape(8, 4, 16)),
        ("aten::mm", ((8, 4), (5, 16)), None),
        ("aten::mm", ((8, 4),), None),
        ("aten::mm", None, None),
        ("aten::mul", ((8, 4), (4, 16)), None),
    ],
)
def test_a_product_s_shape_follows_from_its_inputs(
    op: str, dims: tuple[tuple[int, ...], ...] | None, shape: Shape | None
) -> None:
    assert shape_of(Event(op, "op", 0, 1, 0, 1, None, dims)) == shape
