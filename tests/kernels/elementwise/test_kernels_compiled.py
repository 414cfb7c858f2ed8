"""What the kernels compile to for cards that are not here: wide accesses, 64-bit offsets, no spills.

Run as a script, without TRITON_INTERPRET, it compiles the cases of its standard input and prints what the assembly
contains; the tests start it once a module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support import no_card, rings

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHITECTURES = (80, 90, 100)


def probe(arch: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compile each case for sm_<arch> through the kernel's own launcher, with a driver that knows no card."""
    import torch

    no_card.install(arch)
    from mlpfusion_kernels.elementwise import kernels

    compiled = []
    for case in cases:
        kernel = getattr(kernels, case["kernel"])
        tensors = [getattr(torch, dtype) for dtype in case["dtypes"]]
        compiled.append(kernel.warmup(*tensors, *case["rest"], num_warps=case["warps"], grid=(1,)))
    return list(map(inspect, compiled, no_card.machine_code(compiled)))


def inspect(compiled: Any, code: list[str]) -> dict[str, Any]:
    ptx, ttir = compiled.asm["ptx"], compiled.asm["ttir"]
    return {
        "wide_loads": len(re.findall(r"ld\.global(?:\.\w+)*\.v4\.b32", ptx)),
        "wide_stores": len(re.findall(r"st\.global(?:\.\w+)*\.v4\.b32", ptx)),
        "narrow_loads": len(re.findall(r"ld\.global", ptx)) - len(re.findall(r"ld\.global(?:\.\w+)*\.v4\.b32", ptx)),
        "fp64": len(re.findall(r"\.f64", ptx)),
        "narrow_products": len(re.findall(r"arith\.muli [^\n]*: i32", ttir)),
        "spills": no_card.spills(code),
    }


if __name__ == "__main__":
    no_card.answer(probe)
    raise SystemExit


from mlpfusion_kernels.activations import ACTIVATIONS  # noqa: E402  # after the script above, which imports its own
from mlpfusion_kernels.elementwise.launch import COMPILED_TILE  # noqa: E402


def flat(dtype: str, activation: str, *, backward: bool) -> dict[str, Any]:
    # A size that is no multiple of 16, as the launcher passes it: only its value type matters.
    kernel, count = ("act_mul_backward_flat_kernel", 5) if backward else ("act_mul_flat_kernel", 3)
    flags = [True, True] if backward else []
    rest = [1000001, activation, *flags, COMPILED_TILE.elements]
    return {"kernel": kernel, "dtypes": [dtype] * count, "rest": rest, "warps": COMPILED_TILE.warps}


def rows(unit: int, height: int, width: int, *, backward: bool) -> dict[str, Any]:
    kernel, count = ("act_mul_backward_rows_kernel", 5) if backward else ("act_mul_rows_kernel", 3)
    flags = [True, True] if backward else []
    scalars = [4097, 375] + [751] * (count // 2 + 1 if backward else 2) + [3]
    rest = [*scalars, "gelu_tanh", *flags, unit, height, width]
    return {"kernel": kernel, "dtypes": ["bfloat16"] * count, "rest": rest, "warps": COMPILED_TILE.warps}


CASES = [
    *(flat("bfloat16", activation, backward=back) for activation in ACTIVATIONS for back in (False, True)),
    flat("float32", "silu", backward=False),
    # Row lengths and strides of 375 and 751 units of 8 elements: multiples of 8, none of 16.
    rows(8, 1, 1024, backward=False),
    rows(8, 16, 64, backward=False),
    rows(8, 1, 1024, backward=True),
]


@pytest.fixture(scope="module")
def compiler() -> Iterator[Any]:
    with no_card.Compiler(__file__) as running:
        yield running


@pytest.mark.parametrize("arch", rings.only_first(ARCHITECTURES))
def test_accesses_are_128_bits_wide_offsets_64_and_nothing_spills(arch: int, compiler: Any) -> None:
    for case, found in zip(CASES, compiler.compile(arch, CASES), strict=True):
        inputs = 3 if "backward" in case["kernel"] else 2
        outputs = 2 if "backward" in case["kernel"] else 1
        per_tensor = (
            COMPILED_TILE.elements // (COMPILED_TILE.warps * 32) * (4 if case["dtypes"][0] == "float32" else 2) // 16
        )
        # The flat kernel's tail is scalar and runs once; masked tiles of the row kernel are as wide as full ones.
        bodies = 2 if "rows" in case["kernel"] else 1
        assert found["wide_loads"] == inputs * per_tensor * bodies, case
        assert found["wide_stores"] == outputs * per_tensor * bodies, case
        if "rows" in case["kernel"]:
            assert found["narrow_loads"] == 0, case
        assert found["spills"] == 0, case
        assert found["fp64"] == 0, case
        assert found["narrow_products"] == 0, case
