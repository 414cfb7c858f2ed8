"""What the decode kernels compile to for cards that are not here, in the configurations that shapes get there.

Run as a script, without TRITON_INTERPRET, it runs the calls of its standard input through the launcher, up to the
launch, and prints what the assembly contains; the tests start it once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support import no_card, rings

if TYPE_CHECKING:
    from collections.abc import Iterator

# Compute capability -> multiprocessors and the most shared memory per program of a card.
CARDS = {80: (108, 163 * 1024), 86: (84, 99 * 1024), 90: (132, 227 * 1024), 100: (148, 227 * 1024)}


def probe(arch: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compile both kernels of each case for sm_<arch>, with a driver that knows no card."""
    import torch
    from mlpfusion_kernels.gate_up import decode
    from mlpfusion_kernels.launching.cached import CachedKernel

    no_card.install(arch)
    compiled = []

    def warmup(self: Any, key: Any, programs: int, tensors: Any, rest: Any, warps: int, options: Any = None) -> None:
        dtypes = [tensor.dtype for tensor in tensors]
        kernel = self.kernel.warmup(*dtypes, *rest, num_warps=warps, grid=(programs,), **(options or {}))
        compiled.append((case, kernel))

    CachedKernel.__call__ = warmup  # type: ignore[assignment]
    sms, shared_bytes = CARDS[arch]
    for case in cases:
        m, hidden, intermediate = case["shape"]
        dtype = getattr(torch, case["dtype"])
        chosen = decode.choose_decode(
            m, hidden, intermediate, sms, dtype.itemsize, shared_bytes=shared_bytes, overlap=arch >= 90
        )
        if "gate_up" in case:
            chosen = chosen._replace(gate_up=decode.StreamTile(*case["gate_up"]))
        x, gate, down = (
            torch.empty(size, dtype=dtype) for size in ((m, hidden), (intermediate, hidden), (hidden, intermediate))
        )
        biases = (gate[:, 0], gate[:, 0], down[:, 0]) if case["bias"] else (None, None, None)
        preacts = (x, x) if case["bias"] else None
        product = decode.gate_up_decode(x, gate, gate, *biases[:2], case["activation"], chosen, preacts=preacts)
        if chosen.down is not None:
            decode.down_decode(product, down, biases[2], chosen)
    codes = no_card.machine_code([kernel for _, kernel in compiled])
    return [{**case, **inspect(kernel, code)} for (case, kernel), code in zip(compiled, codes, strict=True)]


def inspect(compiled: Any, code: list[str]) -> dict[str, Any]:
    ptx, ttgir = compiled.asm["ptx"], compiled.asm["ttgir"]
    loops = re.findall(r"scf\.for .*?scf\.yield", ttgir, re.DOTALL)
    return {
        "name": compiled.metadata.name,
        "shared": compiled.metadata.shared,
        "copies": len(re.findall(r"cp\.async\.cg\.shared\.global [^\n]*, 0x10", ptx)),
        "narrow_copies": len(re.findall(r"cp\.async\.ca\.shared\.global", ptx)),
        "products": sorted(set(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", ptx))),
        "loops": len(loops),
        "conversions": sum("convert_layout" in loop for loop in loops),
        "spills": no_card.spills(code),
        "instructions": sum(no_card.opcode(each).startswith("LDGSTS") for each in code),
        "waits": len(re.findall(r"griddepcontrol\.wait", ptx)),
        "launches": len(re.findall(r"griddepcontrol\.launch_dependents", ptx)),
        "fp64": len(re.findall(r"\.f64", ptx)),
        "prefetches": len(re.findall(r"cp\.async\.bulk\.prefetch\.L2", ptx)),
    }


if __name__ == "__main__":
    no_card.answer(probe)
    raise SystemExit

from mlpfusion_kernels.activations import ACTIVATIONS, HEAVIEST  # noqa: E402  # after the script above


def case(shape: tuple[int, int, int], dtype: str = "bfloat16", activation: str = "gelu", **more: Any) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "activation": activation, "bias": False, **more}


CASES = [
    case((1, 768, 3072)),
    case((16, 2048, 16384)),
    *(case((16, 4096, 14336), activation=name) for name in ACTIVATIONS if name != HEAVIEST),
    # Tails of rows and columns, biases and the preactivations stored.
    case((5, 784, 3088), "float16", "silu", bias=True),
    case((24, 2048, 5504)),
    case((64, 2048, 5504)),
    case((16, 768, 3072), "float32", "relu"),
]
# One warp cannot hold what it multiplies without tensor cores.
SPILLING, SPILLING_ON = case((16, 768, 3072), "float32", gate_up=(128, 64, 2, 1)), 90


@pytest.fixture(scope="module")
def compiler() -> Iterator[Any]:
    with no_card.Compiler(__file__) as running:
        yield running


def path(one: dict[str, Any]) -> tuple[Any, ...]:
    """What of a kernel is compiled to other instructions; activations are compiled by the tests of act·mul too."""
    return one["dtype"], one["shape"][0] > 16, one["bias"]


@pytest.mark.parametrize(
    "one",
    rings.first_of_each(CASES, path),
    ids=[f"{one['shape']}-{one['dtype']}-{one['activation']}" for one in CASES],
)
@pytest.mark.parametrize("arch", CARDS)
def test_weights_are_copied_128_bits_wide_and_nothing_spills(arch: int, one: dict[str, Any], compiler: Any) -> None:
    _, shared_bytes = CARDS[arch]
    right = compiler.compile(arch, [one])
    assert right
    slower = []
    for found in right:
        assert found["instructions"] >= found["copies"] > 0, found  # the assembly was there to be read
        assert found["shared"] <= shared_bytes, found
        assert found["loops"] >= 1, found
        assert found["fp64"] == 0, found
        down = found["name"].startswith("down")
        overlap = arch >= 90 and found["shape"][0] <= 16 and found["dtype"] != "float32"
        assert (found["waits"], found["launches"]) == ((int(down), int(not down)) if overlap else (0, 0)), found
        assert (found["prefetches"] > 0) == (overlap and down), found
        if found["dtype"] != "float32":
            wide = {90: "wgmma.mma_async", 100: "tcgen05.mma"}.get(arch)
            assert found["products"] in ([wide], ["mma.sync"]), found
        counts = {name: found[name] for name in ("spills", "narrow_copies", "conversions")}  # narrow: 4 or 8 bytes
        if found["dtype"] == "float32":
            del counts["conversions"]
        slower += [f"{found['name']}: {count} {name}" for name, count in counts.items() if count]
    no_card.expect_no_slower(slower)


def test_the_same_look_finds_a_tile_that_spills(compiler: Any) -> None:
    (gate_up,) = (found for found in compiler.compile(SPILLING_ON, [SPILLING]) if "gate_up" in found)
    assert gate_up["spills"] > 0
