"""The shape of a launch's product, forward and backward, and whose it is."""

from __future__ import annotations

import pytest

from mlpfusion.records.profile import Decoded, Kernel, Row, Traffic
from mlpfusion.records.traffic import Step
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.predict import shapes

M, D, H = 48, 64, 256
WORK = Workload(spec=MLPSpec(hidden_size=D, intermediate_size=H), batch=1, seq=M)


def step(
    role: str | None, flops: int | None = None, *, backward: bool = False, op: str = "aten::mm", kernel: int = 0
) -> Step:
    return Step(
        op=op,
        source="operator",
        read_bytes=1,
        write_bytes=1,
        role=role,
        flops=flops,
        backward=backward,
        kernels=(kernel,),  # type: ignore[arg-type]
    )


def row(*kernels: Decoded) -> Row:
    made = tuple(Kernel(name="k", role="other", decoded=each, time_us=1.0) for each in kernels)
    return Row(backend="any", status="ok", kernels=made, traffic=Traffic(minimum_bytes=1))


@pytest.mark.parametrize(
    ("role", "shape"),
    [
        ("gate_gemm", (M, H, D)),
        ("up_gemm", (M, H, D)),
        ("gate_up_gemm", (M, 2 * H, D)),
        ("down_gemm", (M, D, H)),
    ],
)
def test_a_forward_product_has_the_shape_of_its_role(role: str, shape: tuple[int, int, int]) -> None:
    assert shapes.shapes(step(role), WORK) == (shape,)


@pytest.mark.parametrize(("wide", "operations"), [(H, 2 * M * D * H), (2 * H, 4 * M * D * H)])
def test_a_backward_product_is_any_that_its_operations_allow(wide: int, operations: int) -> None:
    found = shapes.shapes(step("gate_gemm", operations, backward=True), WORK)
    assert found == ((M, wide, D), (M, D, wide), (wide, D, M))
    assert {2 * m * n * k for m, n, k in found} == {operations}


@pytest.mark.parametrize("operations", [None, 0, 2 * M * D * H + 1, 2 * M * D * D])
def test_other_operations_are_no_product_of_the_mlp(operations: int | None) -> None:
    assert shapes.shapes(step("other", operations), WORK) == ()


def test_a_library_s_plain_product_is_pytorch_s_own_without_an_epilogue() -> None:
    plain, fused = Decoded(library="cublas", kind="gemm"), Decoded(library="cublas", kind="gemm", fused_ops=("gelu",))
    elementwise = Decoded(library="aten", kind="elementwise")
    made = row(plain, fused, elementwise)
    assert shapes.is_library_product(step("gate_gemm", 10), made)
    assert shapes.is_library_product(step("gate_gemm"), made)  # by its kernel's name
    assert not shapes.is_library_product(step("gate_gemm", 10, kernel=1), made)
    assert not shapes.is_library_product(step("gate_gemm", 10, op="gate_up_kernel"), made)
    assert not shapes.is_library_product(step("mul", kernel=2), made)


def test_a_product_without_operations_is_one_of_unknown_size() -> None:
    made = row(Decoded(kind="gemm"), Decoded(kind="elementwise"))
    assert shapes.lacks_operations(step("other"), made)
    assert not shapes.lacks_operations(step("other", 10), made)
    assert not shapes.lacks_operations(step("other", kernel=1), made)
