"""The MLPs' share of a call is the time of their kernels, forward and backward, and of nothing else."""

from __future__ import annotations

import gzip
import json
from itertools import permutations, product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.paths import DATA
from support.raw import api, event, kernel, step, text
from support.timeline import GELU, GEMM, MUL

from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.breakdown import MLPShare

FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false> >(int)"
FLASH_BACKWARD = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128> >(int)"
ADD = MUL.replace("MulFunctor<float>", "MulFunctor<float>").replace(
    "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >",
    "CUDAFunctor_add<c10::BFloat16>",
)
GELU_BACKWARD = GELU.replace("GeluCUDAKernelImpl(at::TensorIteratorBase&, ", "GeluBackwardCUDAKernelImpl("
                             "at::TensorIteratorBase&, ").replace("lambda(c10::BFloat16)", "lambda(c10::BFloat16, "
                             "c10::BFloat16)")  # fmt: skip
FUSED_BACKWARD = "triton_poi_fused_gelu_gelu_backward_mul_2"
FUSED_SUM = "triton_poi_fused_add_view_3"
M, D, H = 64, 16, 48
ENGINE = 2  # its thread


class Piece(NamedTuple):
    """One kernel: its operator, its lengths, the node of autograd that makes it, and whether it is an MLP's.

    `custom` is an operator around those of pieces in a row.
    """

    name: str
    op: str
    shape: tuple[int, int, int] | None = None
    node: str | None = None
    mlp: bool = False
    custom: str | None = None


def mm(m: int, k: int, n: int, node: str | None = None, *, mlp: bool = False) -> Piece:
    return Piece(GEMM, "aten::mm", (m, k, n), node, mlp)


def pair(m: int, k: int, n: int, node: str, *, mlp: bool = False) -> list[Piece]:
    """The backward of a product [m, k] x [k, n]: of its weight and of its input."""
    return [mm(k, m, n, node, mlp=mlp), mm(m, n, k, node, mlp=mlp)]


def attention() -> list[Piece]:
    return [*(mm(M, D, D) for _ in "qkv"), Piece(FLASH, "aten::_flash_attention_forward"), mm(M, D, D)]


def attention_backward() -> list[Piece]:
    made = pair(M, D, D, "MmBackward0 o")
    made.append(Piece(FLASH_BACKWARD, "aten::_flash_attention_backward", None, "FlashBackward0"))
    for name in "qkv":
        made += pair(M, D, D, f"MmBackward0 {name}")
    return made


def forward(*, up_last: bool) -> list[Piece]:
    gelu, mul = Piece(GELU, "aten::gelu", mlp=True), Piece(MUL, "aten::mul", mlp=True)
    gate, up = mm(M, D, H, mlp=True), mm(M, D, H, mlp=True)
    return [gate, *([gelu, up] if up_last else [up, gelu]), mul, mm(M, H, D, mlp=True)]


def backward(*, up_last: bool) -> list[Piece]:
    """Node after node, as eager autograd runs them."""
    made = pair(M, H, D, "MmBackward0 down", mlp=True)
    made.append(Piece(ADD, "aten::add_", None, "torch::autograd::AccumulateGrad down"))
    made += [Piece(MUL, "aten::mul", None, "MulBackward0", mlp=True)] * 2
    up = pair(M, D, H, "MmBackward0 up", mlp=True)
    act = [Piece(GELU_BACKWARD, "aten::gelu_backward", None, "GeluBackward0", mlp=True)]
    gate = pair(M, D, H, "MmBackward0 gate", mlp=True)
    made += [*up, *act, *gate] if up_last else [*act, *up, *gate]
    made.append(Piece(ADD, "aten::add", None, "ViewBackward0", mlp=True))  # of the input's two gradients
    return made


def compiled_backward() -> list[Piece]:
    """All of one node, with one fused kernel."""
    node = "CompiledFunctionBackward"
    down, gate = pair(M, H, D, node, mlp=True), pair(M, D, H, node, mlp=True)
    added = Piece(FUSED_SUM, FUSED_SUM, None, node, mlp=True)
    return [*down, Piece(FUSED_BACKWARD, FUSED_BACKWARD, None, node, mlp=True), *gate, *gate, added]


def trace(pieces: list[Piece], *, shapes: bool) -> list[Any]:
    """Three steps of these kernels, each 10 µs longer than the one before, forward and backward by thread."""
    made: list[Any] = []
    for call in range(3):
        start = 100_000 * (call + 1)
        made.append(step(call, start, 90_000))
        for number, one in enumerate(pieces):
            at, tid = start + 100 * (number + 1), ENGINE if one.node else 1
            before = pieces[number - 1] if number else Piece("", "")
            for field, words, early in (("node", "autograd::engine::evaluate_function: ", 40), ("custom", "", 20)):
                name = getattr(one, field)
                if name and name != getattr(before, field):
                    rows = [getattr(each, field) for each in pieces[number:]]
                    length = next((i for i, each in enumerate(rows) if each != name), len(rows))
                    made.append(event("cpu_op", words + name, at - early, 100 * length - 50 + early, tid=tid))
            args: dict[str, Any] = {}
            if shapes and one.shape:
                m, k, n = one.shape
                args["Input Dims"] = [[m, k], [k, n]]
            made.append(event("cpu_op", one.op, at, 40, tid=tid, **args))
            identity = 1000 * call + number + 1
            made.append(api("cudaLaunchKernel", at + 10, 4, identity, tid=tid))
            made.append(kernel(one.name, start + 20_000 + 500 * number, 10 + number, identity))
    return made


def share(pieces: list[Piece], *, shapes: bool) -> MLPShare:
    found = read(text(trace(pieces, shapes=shapes))).breakdown
    assert found is not None
    assert found.mlp is not None
    return found.mlp


def us(pieces: list[Piece], *, mlp: bool, backward: bool | None = None) -> int:
    return sum(
        10 + number
        for number, one in enumerate(pieces)
        if (one.mlp or not mlp) and (backward is None or backward == (one.node is not None))
    )


@pytest.mark.parametrize(("layers", "up_last", "shapes"), [*product((1, 3), (True, False), (True, False))])
def test_eager_training_is_told_by_the_nodes_of_autograd(layers: int, up_last: bool, shapes: bool) -> None:
    pieces = [*attention(), *forward(up_last=up_last)] * layers
    pieces += [*backward(up_last=up_last), *attention_backward()] * layers
    found = share(pieces, shapes=shapes)
    assert (found.layers, found.backward_layers) == (layers, layers)
    assert found.forward_us == pytest.approx(us(pieces, mlp=True, backward=False))
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))
    assert found.kernel_share == pytest.approx(us(pieces, mlp=True) / us(pieces, mlp=False))
    assert found.call_share == pytest.approx(us(pieces, mlp=True) / 90_000)


@pytest.mark.parametrize(("layers", "shapes"), [*product((1, 3), (True, False))])
def test_a_compiled_backward_is_told_by_pairs_around_the_activation(layers: int, shapes: bool) -> None:
    whole = [one._replace(node="CompiledFunctionBackward") for one in attention_backward()]
    pieces = [*attention(), *forward(up_last=True)] * layers + [*compiled_backward(), *whole] * layers
    found = share(pieces, shapes=shapes)
    assert found.backward_layers == layers
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))


@pytest.mark.parametrize(("lone", "layers", "shapes"), [*product((1, 2, 3), (1, 3), (True, False))])
def test_any_number_of_products_may_come_before_the_first_backward(lone: int, layers: int, shapes: bool) -> None:
    node = "CompiledFunctionBackward"
    whole = [one._replace(node=node) for one in attention_backward()]
    pieces = [*attention(), *forward(up_last=True)] * layers
    pieces += [mm(M, 7, D, node)] * lone + [*compiled_backward(), *whole] * layers
    found = share(pieces, shapes=shapes)
    assert found.backward_layers == layers
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))


def fused_forward() -> list[Piece]:
    return [Piece("gate_up_hopper_kernel", "_Fused", None, None, mlp=True), mm(M, H, D, mlp=True)]


def fused_backward(node: str, layer: int, *, custom: bool) -> list[Piece]:
    """The products of one launched together, by the backward of one function or by an operator in compiled code."""
    made = [Piece("gate_up_backward_hopper_kernel", "_FusedBackward", None, node, mlp=True)]
    made += [mm(M, H, D, node, mlp=True)] * 2 + [mm(2 * H, M, D, node, mlp=True), mm(D, M, H, node, mlp=True)]
    return [one._replace(custom=f"mlpfusion_kernels::gated_mlp_backward {layer}" if custom else None) for one in made]


@pytest.mark.parametrize(("layers", "compiled", "shapes"), [*product((1, 3), (True, False), (True, False))])
def test_a_fused_backward_is_all_that_is_launched_with_it(layers: int, compiled: bool, shapes: bool) -> None:
    pieces = [*attention(), *fused_forward()] * layers
    for layer in range(layers):
        node = "CompiledFunctionBackward" if compiled else f"_FusedBackward {layer}"
        more = attention_backward()
        pieces += fused_backward(node, layer, custom=compiled)
        pieces += [one._replace(node=node) for one in more] if compiled else more
    found = share(pieces, shapes=shapes)
    assert (found.layers, found.backward_layers) == (layers, layers)
    assert found.forward_us == pytest.approx(us(pieces, mlp=True, backward=False))
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))


NODE = "CompiledFunctionBackward"
MIDDLE = Piece("gate_up_backward_hopper_kernel", "mlpfusion_kernels::gated_mlp_middle", None, NODE, mlp=True)
NORM_BACKWARD = Piece("triton_per_fused_add_div_mul_pow_sum_4", "triton_per_fused_add_div_mul_pow_sum_4", None, NODE)
PRODUCTS = {
    "x": [mm(M, H, D, NODE, mlp=True)] * 2,
    "x at once": [mm(M, 2 * H, D, NODE, mlp=True)],
    "gate up": [mm(2 * H, M, D, NODE, mlp=True)],
    "gate, up": [mm(H, M, D, NODE, mlp=True)] * 2,
    "down": [mm(D, M, H, NODE, mlp=True)],
}


def compiled_attention_backward() -> list[Piece]:
    return [one._replace(node=NODE) for one in attention_backward()]


def check_compiled(pieces: list[Piece], layers: int, *, shapes: bool) -> None:
    found = share(pieces, shapes=shapes)
    assert (found.layers, found.backward_layers) == (layers, layers)
    assert found.forward_us == pytest.approx(us(pieces, mlp=True, backward=False))
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))


@pytest.mark.parametrize(("layers", "shapes", "summed"), [*product((1, 3), (True, False), (True, False))])
def test_a_fused_kernel_alone_is_told_with_the_products_behind_it(layers: int, shapes: bool, summed: bool) -> None:
    """As our operators are compiled: the sum of x's two gradients alone, or fused with what follows."""
    pieces = [*attention(), *fused_forward()] * layers
    added = Piece(FUSED_SUM, FUSED_SUM, None, NODE, mlp=True) if summed else NORM_BACKWARD
    mlp = [MIDDLE, *PRODUCTS["x"], *PRODUCTS["gate up"], *PRODUCTS["down"], added]
    pieces += [*mlp, NORM_BACKWARD, *compiled_attention_backward()] * layers
    check_compiled(pieces, layers, shapes=shapes)


@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize(("x", "gate_up"), [*product(("x", "x at once"), ("gate up", "gate, up"))])
def test_the_products_of_a_fused_kernel_may_be_one_or_two_in_any_order(
    x: str, gate_up: str, order: tuple[int, ...]
) -> None:
    pieces = [*attention(), *fused_forward()] * 3
    groups = [PRODUCTS[x], PRODUCTS[gate_up], PRODUCTS["down"]]
    first, second, third = (groups[place] for place in order)
    o, *rest = compiled_attention_backward()  # the last products may come behind another layer's first
    pieces += [MIDDLE, *first, NORM_BACKWARD, *second, o, *third, *rest] * 3
    check_compiled(pieces, 3, shapes=True)


@pytest.mark.parametrize("last", ["gate up", "down"])
def test_a_product_may_come_behind_the_next_fused_kernel(last: str) -> None:
    pieces = [*attention(), *fused_forward()] * 3
    delayed, made = list[Piece](), list[Piece]()
    for _ in range(3):
        soon = [one for name in ("x", "gate up", "down") if name != last for one in PRODUCTS[name]]
        made += [MIDDLE, *delayed, *soon, NORM_BACKWARD, *compiled_attention_backward()]
        delayed = PRODUCTS[last]
    check_compiled([*pieces, *made, *delayed], 3, shapes=True)


@pytest.mark.parametrize("left", [("x",), ("x", "down"), ("gate up",)])
def test_a_fused_kernel_whose_weights_are_frozen_has_fewer_products(left: tuple[str, ...]) -> None:
    pieces = [*attention(), *fused_forward()] * 3
    mlp = [MIDDLE, *(one for name in left for one in PRODUCTS[name])]
    pieces += [*mlp, NORM_BACKWARD, *compiled_attention_backward()] * 3
    check_compiled(pieces, 3, shapes=True)


def test_a_fused_kernel_that_computes_gate_and_up_again_takes_that_along() -> None:
    again = Piece("gate_up_hopper_kernel", MIDDLE.op, None, NODE, mlp=True)
    both = [one._replace(custom="mlpfusion_kernels::gated_mlp_middle") for one in (again, MIDDLE)]
    mlp = [*both, *PRODUCTS["x"], *PRODUCTS["gate up"], *PRODUCTS["down"], NORM_BACKWARD]
    pieces = [*attention(), *fused_forward()] * 3 + [*mlp, *compiled_attention_backward()] * 3
    found = share(pieces, shapes=True)
    assert found.backward_layers == 3
    assert found.backward_us == pytest.approx(us(pieces, mlp=True, backward=True))


@pytest.mark.parametrize("shapes", [True, False])
def test_fused_and_other_backwards_stand_beside_each_other(shapes: bool) -> None:
    fused = [MIDDLE, *PRODUCTS["x"], *PRODUCTS["gate up"], *PRODUCTS["down"], NORM_BACKWARD]
    pieces = [*attention(), *fused_forward(), *attention(), *forward(up_last=True)] * 2
    pieces += [*compiled_backward(), *compiled_attention_backward(), *fused, *compiled_attention_backward()] * 2
    check_compiled(pieces, 4, shapes=shapes)


def test_a_fused_kernel_without_a_product_that_fits_is_no_mlps_backward() -> None:
    other = [mm(7, 5, 3, NODE)] * 4
    found = share([*fused_forward(), MIDDLE, *other], shapes=True)
    assert (found.backward_layers, found.backward_us) == (0, 0)


def test_products_of_other_shapes_are_no_mlps_backward() -> None:
    other = [one._replace(shape=(7, 5, 3)) if one.shape else one for one in backward(up_last=True)]
    found = share([*forward(up_last=True), *other], shapes=True)
    assert (found.backward_layers, found.backward_us) == (0, 0)


def test_an_activation_without_its_multiplication_is_no_gate() -> None:
    plain = [one for one in backward(up_last=True) if one.node != "MulBackward0"]
    assert share([*forward(up_last=True), *plain], shapes=False).backward_layers == 0


def test_a_call_without_a_backward_has_none() -> None:
    found = share(forward(up_last=True), shapes=True)
    assert (found.backward_layers, found.backward_us) == (None, None)
    assert found.kernel_share == pytest.approx(1)


def test_a_call_without_an_mlp_has_no_share() -> None:
    found = read(text(trace(attention(), shapes=True))).breakdown
    assert found is not None
    assert found.mlp is None


@pytest.mark.parametrize("speedup", [0.5, 1.0, 1.2, 3.0])
def test_the_gain_is_that_of_a_call_whose_mlps_take_another_time(speedup: float) -> None:
    found = share([*attention(), *forward(up_last=True)], shapes=True)
    call, mlp = 90_000, us([*attention(), *forward(up_last=True)], mlp=True)
    assert found.gain(speedup) == pytest.approx(call / (call - mlp + mlp / speedup) - 1)


def test_the_recorded_training_step_is_its_mlp_without_fill_and_accumulation() -> None:
    reading = read(DATA / "h200_eager_training.json.gz")
    assert reading.breakdown is not None
    assert reading.breakdown.mlp is not None
    beside = [one.time_us or 0.0 for one in reading.analysis.kernels if one.op in ("aten::fill_", "aten::add_")]
    assert len(beside) == 5  # the gradient of the loss; of three weights and of x
    found = reading.breakdown.mlp
    assert (found.backward_us or 0) + found.forward_us == pytest.approx(reading.breakdown.kernel_us - sum(beside))


@pytest.mark.parametrize(("name", "more"), [("compile", "gelu"), ("compile_swapped", "gate_up")])
def test_a_recorded_compiled_step_of_six_layers_has_the_mlps_of_its_sizes(name: str, more: str) -> None:
    path = DATA / f"h200_{name}_training.json.gz"
    found = read(path).breakdown
    assert found is not None
    assert found.mlp is not None
    assert (found.mlp.layers, found.mlp.backward_layers) == (6, 6)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    dims = {
        one["args"]["External id"]: one["args"]["Input Dims"] for one in events if "Input Dims" in one.get("args", {})
    }
    kernels = [one for one in events if one.get("cat") == "kernel"]
    sized = [
        one for one in kernels if any({16384, 2 * 16384} & {*dim} for dim in dims.get(one["args"]["External id"], []))
    ]
    mine = {id(one): one["dur"] for one in [*sized, *(one for one in kernels if more in one["name"])]}
    assert found.mlp.forward_us + (found.mlp.backward_us or 0) == pytest.approx(
        sum(mine.values()) / 3, rel=0.01
    )  # fills


def test_a_recorded_step_has_the_same_mlps_where_the_products_are_the_regions(tmp_path: Path) -> None:
    """The operators of a recorded backward end with their kernels' launch; what was in them is the region's."""
    path = DATA / "h200_compile_swapped_training.json.gz"
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    calls = [one for one in recorded["traceEvents"] if one.get("cat") == "cpu_op"]
    for whole in [one for one in calls if one["name"] == "mlpfusion_kernels::gated_mlp_backward"]:
        start, end = whole["ts"], whole["ts"] + whole["dur"]
        inside = [one for one in calls if one["tid"] == whole["tid"] and start < one["ts"] < end]
        whole["name"] = "mlpfusion_kernels::gated_mlp_middle"
        whole["dur"] = min(one["ts"] for one in inside if one["name"] == "aten::slice") - start
        for one in inside:
            if one["name"] == "aten::addmm_":
                total, *factors = one["args"]["Input Dims"][:3]
                one["name"], one["args"]["Input Dims"] = "aten::mm", [*factors, total]
    changed = tmp_path / "trace.json"
    changed.write_text(json.dumps(recorded))
    before, after = read(path).breakdown, read(changed).breakdown
    assert before is not None
    assert after is not None
    assert after.mlp == before.mlp
