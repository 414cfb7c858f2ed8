"""Reads from Inductor's scheduler the kernels of a graph and the values between them.

It knows that only while it compiles, never where the code comes from a cache. What is read, PyTorch 2.11 and
2.13 have alike; whatever else it holds is unknown here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from mlpfusion.errors import MeasurementError, first_line
from mlpfusion.records.traffic import ScheduledGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nodes of which one kernel is made; the last is C++ only.
_LOOPS: Final = frozenset({"SchedulerNode", "FusedSchedulerNode", "OuterLoopFusedSchedulerNode"})
# Calls of an operator with one result. Others hand out parts of it, write over something, or hold a graph of their own.
_CALLS: Final = frozenset({"ExternKernelOut", "ExternKernelAlloc"})


class _Kernel(NamedTuple):
    """The buffers that one kernel reads, and those that it writes with their bytes."""

    reads: set[str]
    writes: dict[str, int]


@contextmanager
def watched(folder: str) -> Iterator[list[Any]]:
    """Compile everything again, with caches in `folder`; yields the graphs that Inductor lowers, as they come.

    Raises:
        MeasurementError: this PyTorch has no such hook; the message says so.
    """
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache
    from torch._inductor.virtualized import V

    if not hasattr(config, "_post_fusion_custom_pass"):
        raise MeasurementError(f"PyTorch {torch.__version__} has no hook after fusion")
    graphs: list[Any] = []
    before = config._post_fusion_custom_pass

    def keep(nodes: Any) -> Any:
        graphs.append(V.graph)
        return nodes if before is None else before(nodes)

    with fresh_cache(dir=folder), config.patch({"force_disable_caches": True, "_post_fusion_custom_pass": keep}):
        yield graphs


def account(graph: Any) -> ScheduledGraph:
    """What the scheduler of a compiled graph reports; never an error."""
    from torch._inductor.virtualized import V

    code = str(getattr(graph, "cache_key", ""))
    try:
        with V.set_graph_handler(graph):
            found = _kernels(graph.scheduler)
    except Exception as error:  # it is PyTorch's own: another version may hold anything
        found = f"PyTorch {torch.__version__}: {type(error).__name__}: {first_line(error)}"
    if isinstance(found, str):
        return ScheduledGraph(code=code, unknown=found)
    kernels, whole = found
    return ScheduledGraph(code=code, kernels=len(kernels), intermediates=tuple(_handed_on(kernels, whole)))


def _kernels(scheduler: Any) -> tuple[list[_Kernel], dict[str, str]] | str:
    """The kernels in order, and for each buffer that is part of another the name of that; or why they are not known."""
    if scheduler.mutation_real_name:
        return "it writes over a buffer in place, under a second name"
    kernels: list[_Kernel] = []
    whole: dict[str, str] = {}
    joins = False
    for node in scheduler.nodes:  # only now final: the hook comes before the choice of an autotuned kernel
        kind = type(node).__name__
        reads = {dep.name for dep in node.read_writes.reads if type(dep).__name__ != "WeakDep"}  # those only order
        if kind == "NopKernelSchedulerNode":  # a concatenation: others write its parts where they belong
            whole |= dict.fromkeys(reads, next(iter(node.get_buffer_names())))
            continue
        if kind not in _LOOPS and not (kind == "ExternKernelSchedulerNode" and type(node.node).__name__ in _CALLS):
            return f"it has a {kind} of a {type(node.node).__name__}, of which more or less than one kernel may be made"
        writes = node.get_read_write_buffer_accesses(include_reads=False, include_writes=True)
        loops = kind in _LOOPS and not node.is_template()
        if loops and joins:
            kernels[-1].reads.update(reads)
            kernels[-1].writes.update(writes)
        else:
            kernels.append(_Kernel(reads, dict(writes)))
        joins = loops and node.get_device().type == "cpu"  # C++ loops that follow each other become one function
    return kernels, whole


def _handed_on(kernels: list[_Kernel], whole: dict[str, str]) -> Iterator[int]:
    """The bytes of each value that one kernel writes and another reads; what one writes of one whole is one value."""
    for kernel in kernels:
        others = set().union(*(other.reads for other in kernels if other is not kernel))
        parts: dict[str, list[str]] = {}
        for name in kernel.writes:
            parts.setdefault(whole.get(name, name), []).append(name)
        for together, names in parts.items():
            if others & {together, *names}:
                yield sum(kernel.writes[name] for name in names)
