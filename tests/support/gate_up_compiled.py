"""What the gate/up kernels compile to for cards that are not here: the cases that are shipped, and their faults.

Run as a script, without TRITON_INTERPRET, it compiles the cases of its standard input and prints what the machine code
contains.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from mlpfusion_kernels.activations import ACTIVATIONS, HEAVIEST
from mlpfusion_kernels.gate_up import choice, configs
from mlpfusion_kernels.gate_up import launch as launch_gate_up
from mlpfusion_kernels.gate_up.configs import Card, Config
from mlpfusion_kernels.launching.cached import CachedKernel
from mlpfusion_kernels.launching.described import DescribedKernel

from support import no_card, rings

if TYPE_CHECKING:
    from collections.abc import Callable

# The architecture as the compiler numbers it: its multiprocessors (of an A100, A40, H100 and B200), the shared memory
# that one program may have and that a multiprocessor has (CUDA C++ Programming Guide, technical specifications).
ARCHITECTURES = {
    80: (108, 163 * 1024, 164 * 1024),
    86: (84, 99 * 1024, 100 * 1024),
    90: (132, 227 * 1024, 228 * 1024),
    100: (148, 227 * 1024, 228 * 1024),
}
_WGMMA_DEPTH = 16  # of 16-bit elements, that one instruction multiplies
# x [M, K] and weights [H, K] of the compiled calls: multiples of 16, and no size is specialised on further.
M, K, H = 8192, 768, 3072


def probe(arch: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compile what the launcher launches for each case on sm_<arch>, with a driver that knows no card."""
    no_card.install(arch)
    compiled: list[Any] = []

    def compile_cached(self: CachedKernel, key: Any, programs: int, tensors: Any, rest: Any, warps: int, *more: Any):  # type: ignore[no-untyped-def]
        options = {"num_warps": warps, **(more[0] if more else {})}
        compiled.append(self.kernel.warmup(*tensors, *rest, **options, grid=(programs,)))

    def compile_described(
        self: DescribedKernel, key: Any, programs: int, described: Any, tensors: Any, rest: Any, options: Any
    ) -> None:
        arguments = (*map(self.describe, described.boxes()), *tensors, *rest)
        compiled.append(self.kernel.warmup(*arguments, **options, grid=(programs,)))

    multiprocessors, most, _ = ARCHITECTURES[arch]
    launch_gate_up.card = lambda _: Card((arch // 10, arch % 10), multiprocessors, most)
    CachedKernel.__call__ = compile_cached  # type: ignore[method-assign]
    DescribedKernel.__call__ = compile_described  # type: ignore[method-assign]
    for case in cases:
        launch(case)
    return list(map(inspect, compiled, no_card.machine_code(compiled)))


def launch(case: dict[str, Any]) -> None:
    """One launch of this case's kernel, on tensors whose values nobody reads."""
    torch.backends.cuda.matmul.allow_tf32 = case["precision"] == "tf32"

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=getattr(torch, case["dtype"]))

    config, depth = Config(*case["config"]), case["depth"]
    if case["kernel"] == "backward":
        dy, down = empty(M, depth), empty(depth, H)
        launch_gate_up.gate_up_backward(dy, down, empty(M, H), empty(M, H), case["activation"], config)
        return
    biases = (empty(H), empty(H)) if case["bias"] else (None, None)
    first, second = empty(2, H, depth)  # which of the two comes first in memory is a constant of the kernels
    gate, up = (second, first) if case["swapped"] else (first, second)
    weights = launch_gate_up.Weights(gate, up, empty(depth, H), *biases)
    launch_gate_up.gate_up_forward(empty(M, depth), weights, case["activation"], case["preact"], config)


def inspect(compiled: Any, code: list[str]) -> dict[str, Any]:
    """Counts in the machine code."""
    threads = re.search(r"\.(?:req|max)ntid (\d+)", compiled.asm["ptx"])
    assert threads is not None, compiled.asm["ptx"][:2000]
    registers, stack = no_card.usage(compiled)
    patterns = {
        "async_copies": r"LDGSTS\b",
        "wide_async_copies": r"LDGSTS\b.*\.128\b",
        "tma_loads": r"UTMALDG\b",
        "tma_stores": r"UTMASTG\b",
        "loads": r"LDG\b",
        "wide_loads": r"LDG\b.*\.128\b",
        "stores": r"STG\b",
        "wide_stores": r"STG\b.*\.128\b",
        "mma": r"HMMA\b",
        "wgmma": r"HGMMA\b",
        "tcgen05": r"UTC\w*MMA\b",
    }
    opcodes = Counter(map(no_card.opcode, code))
    return {
        "threads": int(threads[1]),
        "registers": registers,
        "stack": stack,
        "shared": compiled.metadata.shared,
        "conversions": conversions_beside_products(compiled.asm["ttgir"]),
        "spills": no_card.spills(code),
        "waited": sum("gsb0" in each for each in code if no_card.opcode(each).startswith("HGMMA")),
        "wgmma_columns": sorted({int(wide[1]) for each in opcodes if (wide := re.match(r"HGMMA\.64x(\d+)x16", each))}),
        **{
            name: sum(times for each, times in opcodes.items() if re.match(pattern, each))
            for name, pattern in patterns.items()
        },
    }


def conversions_beside_products(ttgir: str) -> int:
    """Layout conversions in the blocks of the innermost loops that hold a product.

    An epilogue within such a loop is a block of its own, and a block with a loop in it is no innermost one.
    """
    lines = ttgir.splitlines()
    depth = [len(line) - len(line.lstrip()) for line in lines]
    found: set[int] = set()
    for at, line in enumerate(lines):
        if not re.search(r"= (?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) ", line):
            continue
        first, last = at, at
        while depth[first - 1] >= depth[at]:
            first -= 1
        while depth[last + 1] >= depth[at]:
            last += 1
        beside = [number for number in range(first, last + 1) if depth[number] == depth[at]]
        if not any("scf.for" in lines[number] for number in beside):
            found.update(number for number in beside if "ttg.convert_layout" in lines[number])
    return len(found)


class Case(NamedTuple):
    """One kernel as compiled: a configuration and the constants of a call."""

    kernel: str
    config: Config
    dtype: str = "bfloat16"
    activation: str = HEAVIEST
    bias: bool = True
    preact: bool = True
    precision: str = "ieee"
    swapped: bool = False
    depth: int = K


def card(arch: int) -> Card:
    multiprocessors, most, _ = ARCHITECTURES[arch]
    return Card((arch // 10, arch % 10), multiprocessors, most)


def shipped(arch: int, use: str, dtype: torch.dtype = torch.bfloat16, *, descriptors: bool = True) -> list[Config]:
    """The configurations of the table for one use: forward, training or backward."""
    rules = getattr(configs.table(card(arch), dtype, descriptors=descriptors), use)
    return sorted({config for rule in rules for config in rule.configs})


def cases_of(arch: int) -> list[Case]:
    """Every shipped configuration in bf16 at its heaviest; other activations and dtypes on the ones for large M."""
    cases = []
    for descriptors in (True, False):
        training, forward, down = (
            [one for one in shipped(arch, use, descriptors=descriptors) if one.split <= 2]  # more are the same code
            for use in ("training", "forward", "backward")
        )
        forward = [one for one in forward if one not in training]
        cases += [Case("forward", config) for config in training]
        cases += [Case("forward", config, swapped=True) for config in training if config.form == "wide"][-1:]
        cases += [Case("forward", config, bias=False, preact=False) for config in forward]
        cases += [Case("backward", config) for config in down]
    if arch == 86:  # else as sm_80, whose tensor cores it has
        return list(dict.fromkeys(cases))
    here = card(arch)
    large = choice.choose(here, torch.bfloat16, M, K, H)
    backward = choice.choose_backward(here, torch.bfloat16, M, K, H)
    for name in (each for each in ACTIVATIONS if each != HEAVIEST):
        cases += [Case("forward", large, activation=name, bias=False, preact=False)]
        cases += [Case("backward", backward, activation=name)]
    cases += [Case("forward", large, "float16", bias=False, preact=False), Case("backward", backward, "float16")]
    if backward.form == "hopper":
        # A longer sum has more steps for the epilogue, each with less of it. Both kinds of gelu keep one address on the
        # stack there, from the start to after the last product, by Triton 3.7 and not by 3.6.
        cases += [Case("backward", backward, dtype, "silu", depth=4096) for dtype in ("bfloat16", "float16")]
    for precision in ("ieee", "tf32"):
        for use, kernel in (("training", "forward"), ("backward", "backward")):
            found = shipped(arch, use, torch.float32)
            cases += [Case(kernel, config, "float32", precision=precision) for config in found]
    return list(dict.fromkeys(cases))


class Faults(NamedTuple):
    """What is wrong with machine code: does it not do what the form is for, or only slower than it could?"""

    broken: list[str]
    slower: list[str]


def faults(arch: int, case: Case, found: dict[str, Any]) -> Faults:
    """What is wrong with this machine code."""
    config = case.config
    _, most, whole = ARCHITECTURES[arch]
    resident = max(config.resident, 1)
    tensor_core = {8: "mma", 9: "wgmma", 10: "tcgen05"}[arch // 10] if config.block_m >= 64 else "mma"
    # The weight of the backward lies the wrong way for TF32 on these: four bytes at a time turn it.
    turned = case.kernel == "backward" and case.precision == "tf32" and arch >= 90 and config.block_m >= 64
    itemsize = getattr(torch, case.dtype).itemsize
    bytes_each = config.block_m * config.block_n // config.parts * itemsize // found["threads"]
    needed = {
        f"{found['shared']} bytes of shared memory": found["shared"] <= most,
        f"no {tensor_core}": found[tensor_core] > 0 or (case.dtype == "float32" and case.precision == "ieee"),
    }
    flags = config.block_m // 64 if config.split > 1 else 0
    scalars = 12 if config.split > 1 else 0  # what a tile needs once: no sum is among them
    wanted = {
        f"{found['stack']} bytes of stack": found["stack"] <= 4 * scalars,
        f"{found['spills']} spills": found["spills"] <= 2 * scalars,
        f"{resident} programs do not fit into shared memory": resident * (found["shared"] + 1024) <= whole,
        f"{resident} programs do not fit into registers": resident * found["registers"] * found["threads"] <= 65536,
        f"{found['conversions']} conversions": found["conversions"] == 0,
        # Each thread's flag of a share is a store of its own, and a load.
        "narrow loads": (case.kernel == "forward" and case.bias) or found["loads"] - flags == found["wide_loads"],
        "narrow stores": found["stores"] - flags == found["wide_stores"] or bytes_each < 16,
        # The specialised kernels wait once a step. The compiler waits after each product, and the tensor cores stand
        # still, where it cannot leave accumulators where they are.
        "products one after another": config.form != "hopper"
        or found["waited"] * config.block_k == found["wgmma"] * _WGMMA_DEPTH,
    }
    if config.form == "pointer":
        needed["no cp.async"] = found["async_copies"] > 0
        needed["no stores"] = found["stores"] > 0
        wanted["narrow cp.async"] = turned or found["async_copies"] == found["wide_async_copies"]
    else:
        # The specialised backward stores whole rows by its threads.
        by_threads = config.form == "hopper" and case.kernel == "backward"
        needed["no TMA"] = found["tma_loads"] > 0 and (found["tma_stores"] > 0 or by_threads)
    return Faults(*([fault for fault, fine in checks.items() if not fine] for checks in (needed, wanted)))


def named(arch: int, case: Case) -> str:
    """The id of its test: what tells it from the others."""
    flags = [name for name in ("bias", "preact", "swapped") if getattr(case, name)]
    flags += [f"over_{case.depth}"] * (case.depth != K)
    config = "-".join(map(str, case.config))
    return "-".join([f"sm_{arch}", case.kernel, config, case.dtype, case.precision, case.activation, *flags])


SHIPPED = [(arch, case) for arch in ARCHITECTURES for case in cases_of(arch)]


def path(row: tuple[int, Case]) -> tuple[Any, ...]:
    """What of a kernel is compiled to other instructions; the rest is sizes."""
    arch, case = row
    # sm_86 has the instructions of sm_80.
    return arch // 10, case.kernel, case.config.form, case.config.split > 1, case.precision


def each_shipped(of: Callable[[Case], bool]) -> Any:
    """Parametrises a test of `arch` and `case` by the shipped cases of one kind."""
    rows = [row for row in SHIPPED if of(row[1])]
    return pytest.mark.parametrize(("arch", "case"), rings.first_of_each(rows, path), ids=[named(*row) for row in rows])


def expect_good(compiler: no_card.Compiler, arch: int, case: Case) -> dict[str, Any]:
    """What the machine code of a shipped case contains, which has no fault."""
    (found,) = compiler.compile(arch, [case._asdict()])
    broken, slower = faults(arch, case, found)
    assert broken == []
    no_card.expect_no_slower(slower)
    return found


if __name__ == "__main__":
    no_card.answer(probe)
