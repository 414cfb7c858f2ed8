"""Derives findings about a call's device work: copies, fills, small kernels, fusion."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import Finding
from mlpfusion.trace.names import ops
from mlpfusion.trace.words import NAME, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import Reading

# A launch costs the host 2 to 5 µs and the device about as long between kernels: below 10 µs of work it weighs.
SMALL_US: Final = 10.0
MANY: Final = 10
# Fusing needs two kernels; those of a library's own making are none.
FUSABLE: Final = 2

_NAMED: Final = 3
_MAKERS_THAT_FUSE: Final = frozenset({"inductor", "inductor-cpp", "liger", "mlpfusion", "quack", "flashinfer", "vllm"})
# What compiled code runs before it replays a graph.
_INTO_GRAPH: Final = "aten::_foreach_copy_"


def of_work(reading: Reading) -> Iterable[Finding]:
    """All findings about the kernels, copies and fills of a call."""
    for rule in (_bias_copies, _fills, _transfers, _copies, _queries, _fusion, _small):
        yield from rule(reading)


def _us(kernels: Iterable[Kernel]) -> float:
    return sum(kernel.time_us or 0.0 for kernel in kernels)


def _before_products(kernels: Sequence[Kernel], kind: str, text: str = "") -> list[tuple[Kernel, Kernel]]:
    """Copies or fills whose next neighbour on the device is a matrix product."""
    return [
        (one, after)
        for one, after in pairwise(kernels)
        if one.decoded.kind == kind and text in one.name and after.decoded.kind == "gemm"
    ]


def _bias_copies(reading: Reading) -> Iterable[Finding]:
    found = _before_products(reading.analysis.kernels, "memcpy", "DtoD")
    if not found:
        return
    copies = [copy for copy, _ in found]
    by_addmm = sum((copy.op or after.op or "").endswith(("addmm", "addmm_out")) for copy, after in found)
    yield Finding(
        id="copy_before_gemm",
        seen=f"{counted(len(found), 'device-to-device copy')} right before a matrix product, "
        f"{_us(copies):.1f} µs a call" + (f"; {by_addmm} inside addmm" if by_addmm else ""),
        means="the product accumulates onto its addend (a bias, as in addmm), which is copied to the result first; the "
        "copy replaces an eager kernel, and writes and reads the result once more",
        do="use a bias epilogue (contiguous 1-D bias through cuBLASLt) or max-autotune; count the copy in the bytes",
        cost_us=_us(copies),
    )


def _fills(reading: Reading) -> Iterable[Finding]:
    found = _before_products(reading.analysis.kernels, "memset")
    if found:
        fills = [fill for fill, _ in found]
        replayed = all("GraphLaunch" in (fill.launched_by or "") for fill in fills)
        yield Finding(
            id="memset_before_gemm",
            seen=f"{counted(len(found), 'fill')} right before a matrix product, {_us(fills):.1f} µs a call",
            means="the GEMM library clears a workspace or counters of its kernel: part of the product's cost, "
            "no operator of the model",
            do="count it with its product; the CUDA graph replays it without a host launch"
            if replayed
            else "count it with its product; it is one more host launch, which a CUDA graph removes",
            cost_us=_us(fills),
        )


def _transfers(reading: Reading) -> Iterable[Finding]:
    """Traffic between host and device inside the loop."""
    kernels = reading.analysis.kernels
    for way, name, means in (
        ("HtoD", "host_to_device", "inputs, scalars or indices are copied to the device in every call"),
        ("DtoH", "device_to_host", "results are copied back in every call, and the host waits for them"),
    ):
        copies = [kernel for kernel in kernels if kernel.decoded.kind == "memcpy" and way in kernel.name]
        if copies:
            unpinned = sum("Pageable" in copy.name for copy in copies)
            yield Finding(
                id=name,
                seen=f"{counted(len(copies), f'{way} copy')} a call, {_us(copies):.1f} µs"
                + (f"; {unpinned} of them from or to pageable memory" if unpinned else ""),
                means=means + ("; pageable memory makes the copy synchronous" if unpinned else ""),
                do="create the tensor on the device once, before the loop; else pin it and copy with non_blocking=True",
                cost_us=_us(copies),
            )


def _is_copy(kernel: Kernel) -> bool:
    """Whether a kernel only moves or converts: a copy, a cast, a contiguous, or Inductor's kernel of those alone."""
    decoded = kernel.decoded
    work = [op for op in decoded.fused_ops if op not in ops.VIEWS]
    if decoded.kind == "memcpy":
        return "DtoD" in kernel.name
    if decoded.library in ("aten", "inductor") and decoded.kind == "elementwise":
        moves = {"copy", "_to_copy", "clone", "convert_element_type", "cat"}
        return bool(work) and set(work) <= moves
    return False


def _copies(reading: Reading) -> Iterable[Finding]:
    kernels = reading.analysis.kernels
    hidden = {id(copy) for copy, _ in _before_products(kernels, "memcpy", "DtoD")}
    found = [kernel for kernel in kernels if _is_copy(kernel) and id(kernel) not in hidden]
    if not found:
        return
    by = Counter(kernel.op or "no operator" for kernel in found)
    means = "tensors are cast, joined or made contiguous between the products: each reads and writes memory in full"
    advice = "keep one dtype and the layout that the next operator reads; torch.compile fuses a cast into its consumer"
    if reading.graphs and all(kernel.op == _INTO_GRAPH for kernel in found):
        means = "a graph reads its inputs from static buffers, into which every call copies them first"
        advice = "write the input into the graph's buffer, or mark it static if it does not move"
    yield Finding(
        id="extra_copies",
        seen=f"{counted(len(found), 'kernel')} for copies or casts alone, {_us(found):.1f} µs a call ("
        + ", ".join(f"{count}x {name}" for name, count in by.most_common(4))
        + ")",
        means=means,
        do=advice,
        cost_us=_us(found),
    )


def _queries(reading: Reading) -> Iterable[Finding]:
    queries = reading.analysis.launches.occupancy_queries
    if queries:
        yield Finding(
            id="occupancy_query",
            seen=f"{counted(queries, 'occupancy query')} a call",
            means="the library queries how many blocks fit before it launches a product: host time, no device work",
            do="nothing on a GPU-bound call; a CUDA graph queries once, at capture",
            cost_us=sum(tally.total_us for tally in reading.apis if "Occupancy" in tally.name) / reading.call.count,
        )


def is_loose(kernel: Kernel) -> bool:
    """Whether a kernel is a single pointwise operator or reduction of PyTorch's own."""
    return kernel.decoded.library == "aten" and kernel.decoded.kind in ("elementwise", "reduction")


def _is_fused(kernel: Kernel) -> bool:
    """Whether a kernel is of a maker that fuses, and is no single operator of Inductor's."""
    decoded = kernel.decoded
    single = decoded.library == "inductor" and len([op for op in decoded.fused_ops if op not in ops.VIEWS]) < FUSABLE
    return decoded.library in _MAKERS_THAT_FUSE and not single


def _fusion(reading: Reading) -> Iterable[Finding]:
    """Pointwise kernels and reductions that compile could fuse, or that there are none."""
    kernels = [kernel for kernel in reading.analysis.kernels if kernel.decoded.kind not in ("memset", "memcpy")]
    loose = [kernel for kernel in kernels if is_loose(kernel)]
    made = [kernel for kernel in kernels if _is_fused(kernel)]
    total = _us(kernels)
    if reading.device != "cuda" or not kernels:
        return
    if len(loose) >= FUSABLE:
        what = Counter(op for kernel in loose for op in kernel.decoded.fused_ops)
        share = f" ({_us(loose) / total:.0%} of the device's time)" if total else ""
        yield Finding(
            id="fusable_kernels",
            seen=f"{len(loose)} of {len(kernels)} kernels are PyTorch's own elementwise kernels and reductions, "
            f"{_us(loose):.1f} µs a call{share}: {', '.join(f'{count}x {op}' for op, count in what.most_common(6))}",
            means="each reads its inputs from memory and writes its result back, which a fused kernel avoids",
            do="use torch.compile, or a kernel that fuses them; this saves the traffic between them",
            cost_us=_us(loose),
        )
    elif made and any(kernel.decoded.kind == "gemm" for kernel in kernels):
        names = list(dict.fromkeys(kernel.name[:NAME] for kernel in made))
        fused = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        yield Finding(
            id="already_fused",
            seen=f"{counted(len(kernels), 'kernel')} a call, {len(loose) or 'none'} of them a pointwise kernel of "
            f"PyTorch's own; fused already: {fused}",
            means="torch.compile has nothing left to fuse: only matrix products and fused kernels remain",
            do="optimise the products or the launches, or fuse the activation into an epilogue",
            cost_us=_us(made),
        )


def _small(reading: Reading) -> Iterable[Finding]:
    """Kernels that the host launched one by one for little work; those of a graph have no launch of their own."""
    kernels = [kernel for kernel in reading.analysis.kernels if kernel.decoded.kind not in ("memset", "memcpy")]
    small = [
        kernel
        for kernel in kernels
        if kernel.time_us is not None and kernel.time_us < SMALL_US and "GraphLaunch" not in (kernel.launched_by or "")
    ]
    if reading.device == "cuda" and len(small) >= MANY and 2 * len(small) >= len(kernels):
        yield Finding(
            id="many_small_kernels",
            seen=f"{len(small)} of {len(kernels)} kernels run for less than {SMALL_US:g} µs, {_us(small):.0f} in all",
            means="launching each costs about as much as running it: the number of kernels is the cost, not their work",
            do="torch.compile may fuse them; a CUDA graph launches all at once; a larger batch fills them",
            cost_us=_us(small),
        )
