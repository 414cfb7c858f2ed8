"""Bytes derived from what each kernel does, as `bench/bytes_by_role.py` does."""

from __future__ import annotations

import pytest
from support.bench import bench

from mlpfusion.records.profile import Decoded, Kernel
from mlpfusion.spec import MLPSpec, Workload

traffic = bench("bytes_by_role").traffic

M, D, H = 8192, 768, 3072
ARTICLE = Workload(spec=MLPSpec(hidden_size=D, intermediate_size=H), batch=64, seq=128)
EAGER = ("gate_gemm", "activation", "up_gemm", "mul", "down_gemm")
FUSED_ACT_MUL = ("memset", "gate_gemm", "up_gemm", "act_mul", "down_gemm")
PACKED = ("gate_up_gemm", "act_mul", "down_gemm")


def kernels(*roles):
    return [Kernel(name=f"kernel_{role}", role=role, decoded=Decoded(), time_us=1.0) for role in roles]


@pytest.mark.parametrize(
    ("roles", "elements", "megabytes"),
    [
        (EAGER, 3 * D * H + 3 * M * D + 8 * M * H, 455),
        (FUSED_ACT_MUL, 3 * D * H + 3 * M * D + 6 * M * H, 354),
        (PACKED, 3 * D * H + 2 * M * D + 6 * M * H, 341),
    ],
)
def test_the_formulas_of_the_usual_backends(roles, elements, megabytes):
    found = traffic(ARTICLE, kernels(*roles))
    assert found.derived_bytes == 2 * elements
    assert round(found.derived_bytes / 1e6) == megabytes
    assert found.minimum_bytes < found.derived_bytes


def test_biases_are_read_once():
    spec = MLPSpec(hidden_size=D, intermediate_size=H, bias=True)
    with_bias = traffic(Workload(spec=spec, batch=64, seq=128), kernels(*EAGER))
    assert with_bias.derived_bytes - traffic(ARTICLE, kernels(*EAGER)).derived_bytes == 2 * (2 * H + D)


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ((*EAGER, "other"), "no formula for 'kernel_other'"),
        ((*EAGER, "memcpy"), "no formula for 'kernel_memcpy'"),
        ((*EAGER, "down_gemm"), "down_gemm takes more than one kernel"),
        ((), "no kernel"),
    ],
)
def test_what_has_no_formula_gives_no_number(roles, reason):
    found = traffic(ARTICLE, kernels(*roles))
    assert found.derived_bytes is None
    assert reason in found.reasons["derived_bytes"]
    assert found.minimum_bytes == ARTICLE.minimum_bytes


def test_training_has_no_formulas():
    training = Workload(spec=ARTICLE.spec, batch=64, seq=128, mode="training")
    assert "backward" in traffic(training, kernels(*EAGER)).reasons["derived_bytes"]
