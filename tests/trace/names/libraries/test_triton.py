"""Names of kernels written in Triton: Inductor's, Liger's and this project's own, and Inductor's C++ ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.names.decode import decode, parse

OPERATORS = st.lists(
    st.sampled_from(["add", "mul", "gelu", "silu", "_unsafe_view", "native_layer_norm"]), min_size=1, max_size=5
)


@given(st.sampled_from(["poi", "red", "per", "for"]), OPERATORS, st.integers(0, 999))
def test_inductor_names_what_it_fused(template: str, operators: list[str], number: int) -> None:
    found = decode(f"triton_{template}_fused_{'_'.join(operators)}_{number}")
    kind = {"poi": "elementwise", "for": "elementwise"}.get(template, "reduction")
    assert (found.library, found.kind, found.fused_ops) == ("inductor", kind, tuple(operators))


@pytest.mark.parametrize("product", ["mm", "addmm", "bmm"])
def test_a_template_of_a_product_is_one(product: str) -> None:
    assert decode(f"triton_tem_fused_{product}_relu_0").kind == "gemm"
    assert decode(f"triton_{product}").kind == "gemm"
    assert decode("triton_tem_fused_relu_0").kind == "other"


def test_before_torch_2_1_nothing_is_said_of_operators() -> None:
    found = parse("triton__0d1d2de")
    assert (found.decoded.library, found.decoded.fused_ops) == ("inductor", ())
    assert any("divisible by 16" in token.meaning for token in found.tokens)


@given(OPERATORS)
def test_c_plus_plus_kernels_of_a_cpu_run(operators: list[str]) -> None:
    found = decode(f"graph_0_cpp_fused_{'_'.join(operators)}_0")
    assert (found.library, found.fused_ops) == ("inductor-cpp", tuple(operators))


@pytest.mark.parametrize(
    ("begin", "ops", "kind"),
    [
        ("_geglu_tanh", ("gelu", "mul"), "elementwise"),
        ("_swiglu", ("silu", "mul"), "elementwise"),
        ("_rms_norm", ("rms_norm",), "reduction"),
    ],
)
def test_liger_is_likely_by_its_name_and_has_a_direction(begin: str, ops: tuple[str, ...], kind: str) -> None:
    forward, backward = decode(f"{begin}_forward_kernel"), decode(f"{begin}_backward_kernel")
    assert (forward.library, forward.kind, forward.fused_ops) == ("liger", kind, ops)
    assert backward.fused_ops == (f"{ops[0]}_backward", *ops[1:])
    assert forward.form == ("tanh" if begin == "_geglu_tanh" else None)
    assert parse(f"{begin}_forward_kernel").tokens[0].certainty == "likely"


@pytest.mark.parametrize("how", ["flat", "rows"])
@pytest.mark.parametrize(("way", "fused"), [("", "act_mul"), ("backward_", "act_mul_backward")])
def test_our_elementwise_kernels(how: str, way: str, fused: str) -> None:
    found = decode(f"act_mul_{way}{how}_kernel")
    assert (found.library, found.kind, found.fused_ops) == ("mlpfusion", "elementwise", (fused,))


@pytest.mark.parametrize("form", ["hopper", "wide", "pointer", "decode"])
def test_our_products(form: str) -> None:
    forward, backward = decode(f"gate_up_{form}_kernel"), decode(f"gate_up_backward_{form}_kernel")
    assert (forward.kind, forward.fused_ops, backward.fused_ops) == ("gemm", ("act_mul",), ("act_mul_backward",))
    assert (decode(f"down_{form}_kernel").kind, decode(f"down_{form}_kernel").fused_ops) == ("gemm", ())
