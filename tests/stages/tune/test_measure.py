"""What is measured in a search: values beside times, replays alone, kernels that spill."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mlpfusion.stages.tune import measure


def products(dtype: torch.dtype, *, seed: int = 0, order: Any = lambda parts: parts.sum(0)) -> tuple[torch.Tensor, ...]:
    """(product, gate, up) of random operands, with sums over 512 terms in eight parts that `order` adds up."""
    generator = torch.Generator().manual_seed(seed)
    x, gate, up = (torch.randn(shape, generator=generator).to(dtype) for shape in ((64, 512), (96, 512), (96, 512)))
    sums = [
        order(torch.stack([a @ b.T for a, b in zip(x.float().chunk(8, 1), weight.float().chunk(8, 1), strict=True)]))
        for weight in (gate, up)
    ]
    g, u = (total.mul(512**-0.5).to(dtype) for total in sums)
    return (torch.nn.functional.gelu(g.float(), approximate="tanh") * u.float()).to(dtype), g, u


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("seed", range(5))
def test_sums_in_another_order_are_no_fault(dtype: torch.dtype, seed: int) -> None:
    right = products(dtype, seed=seed)
    other = products(dtype, seed=seed, order=lambda parts: parts.flip(0).cumsum(0)[-1])
    assert measure.difference(other, right, 512) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    "fault",
    [
        lambda product, gate, up: (product, up, gate),
        lambda product, gate, up: (product * 1.05, gate, up),
        lambda product, gate, up: (product, gate, torch.where(torch.arange(96) == 95, 0, up)),
        lambda product, gate, up: (product.index_fill(0, torch.tensor(63), float("nan")), gate, up),
        lambda product, gate, up: ((torch.nn.functional.silu(gate.float()) * up.float()).to(gate.dtype), gate, up),
    ],
    ids=["swapped", "scaled", "last column", "nan", "activation"],
)
def test_other_values_are(dtype: torch.dtype, fault: Any) -> None:
    right = products(dtype)
    assert str(measure.difference(fault(*right), right, 512)).startswith("wrong: off by ")


def test_a_sum_without_its_last_terms_is_a_fault() -> None:
    right = products(torch.bfloat16)
    assert measure.difference(products(torch.bfloat16, order=lambda parts: parts[:-1].sum(0)), right, 512) is not None


def test_a_kernel_that_could_not_be_loaded_spills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, refused = SimpleNamespace(function=7, n_spills=3), SimpleNamespace(function=None)
    kernel = SimpleNamespace(device_caches={0: ({"one": loaded, "other": refused},)})
    module = SimpleNamespace(gate_up_kernel=kernel, unrelated=1)
    monkeypatch.setitem(sys.modules, "mlpfusion_kernels.gate_up_of_this_test", module)
    assert measure._spills(0)[7] == 3
    assert None not in measure._spills(0)
    assert 7 not in measure._spills(1)
