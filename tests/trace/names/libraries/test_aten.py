"""Names of PyTorch's own kernels, made of their parts: how they walk, what they compute, on which elements."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.cpp import split
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.names.libraries.aten import is_own

TYPES = pytest.mark.parametrize(
    ("spelled", "dtype"),
    [("float", "float32"), ("c10::BFloat16", "bfloat16"), ("c10::Half", "float16"), ("double", "float64")],
)


@TYPES
@pytest.mark.parametrize("operator", ["Add", "Mul", "Div"])
@pytest.mark.parametrize("vector", [1, 4, 8])
def test_a_vectorised_kernel(spelled: str, dtype: str, operator: str, vector: int) -> None:
    inner = f"at::native::binary_internal::{operator}Functor<{spelled}> "
    functor = f"at::native::BinaryFunctor<{spelled}, {spelled}, {spelled}, {inner}>"
    walk = f"vectorized_elementwise_kernel<{vector}, {functor}, std::array<char*, 3ul> >"
    found = decode(f"void at::native::{walk}(int, {functor})")
    assert (found.library, found.kind, found.fused_ops) == ("aten", "elementwise", (operator.lower(),))
    assert (found.vector, found.dtype) == (vector, dtype)


def test_only_vectorised_kernels_have_a_vector() -> None:
    walk = "unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4>"
    name = f"void at::native::{walk}(int)"
    assert (decode(name).vector, decode(name).fused_ops) == (None, ("add",))


@pytest.mark.parametrize(("number", "form"), [("#1", "tanh"), ("#2", "erf"), ("#3", None)])
def test_gelu_says_its_form_by_the_number_of_its_lambda(number: str, form: str | None) -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        f"at::native::GeluType)::{{lambda(){number}}}::operator()() const::{{lambda()#4}}::operator()() const::"
        "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)"
    )
    assert (decode(name).fused_ops, decode(name).form) == (("gelu",), form)


@TYPES
def test_a_reduction(spelled: str, dtype: str) -> None:
    found = decode(
        f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<{spelled}, at::native::func_wrapper_t<{spelled}, "
        f"at::native::sum_functor<{spelled}, {spelled}, {spelled}>::operator()> > >(int)"
    )
    assert (found.kind, found.fused_ops, found.dtype) == ("reduction", ("sum",), dtype)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void at::native::elementwise_kernel<1>(int)", True),
        ("void at_cuda_detail::cub::DeviceReduceKernel<int>(int)", True),
        ("void c10d::f<int>(int)", True),
        ("void softmax_warp_forward<float, float, float, 8, false, false>(float*)", True),
        ("void vllm::rms_norm_kernel<float>(float*)", False),
        ("void act_and_mul_kernel<float>(float*)", False),
    ],
)
def test_what_is_pytorchs(name: str, own: bool) -> None:
    assert is_own(name, split(name)) is own
