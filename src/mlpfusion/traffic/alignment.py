"""Aligns the launches of a ledger with the device work of a trace, which proves the ledger complete.

Where the two differ no count can be given: a kernel that the ledger missed may read back anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.traffic import COPIES, Alignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.traffic import DeviceWork, Launch, Ledger

# Launches times pieces of work beyond which the two are not compared: a forward and backward of an MLP has 20 times 30.
MOST_CELLS: Final = 4_000_000
_CPP_GRAPH: Final = re.compile(r"^graph_\d+_")  # PyTorch numbers the kernels of its C++ graphs by process
_COMPILED: Final = re.compile(r"^(graph_\d+_)?(triton|cpp)_")
_OWN: Final = ("aten::", "prims::", "mkldnn::", "inductor::")
_MATRIX: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_addmm_activation", "mv", "addmv"})


def align(ledger: Ledger, work: Sequence[DeviceWork]) -> Alignment:
    """The device work of each launch, in the order of both; as much as possible where they differ."""
    launches = ledger.launches
    if len(launches) * len(work) > MOST_CELLS:
        reason = f"{len(launches)} launches and {len(work)} pieces of device work are too many to compare"
        return Alignment(kernels=((),) * len(launches), missing=(reason,))
    units = _units(launches, {item.name for item in work})
    kernels: list[tuple[int, ...]] = [()] * len(launches)
    taken: set[int] = set()
    for unit, first, count in _pairs([launches[members[0]] for members in units], work):
        for launch in units[unit]:
            kernels[launch] = tuple(work[index].kernel for index in range(first, first + count))
        taken.update(range(first, first + count))
    left = [item for index, item in enumerate(work) if index not in taken]
    # A fill clears a workspace. Copies around a graph's replay move its inputs, as others did around its capture.
    other = [item for item in left if item.kind == "memset" or (ledger.captured and _is_copy(item))]
    lost = [
        one.op
        for one, mine in zip(launches, kernels, strict=True)
        if not mine and not (ledger.captured and (one.op in COPIES or _sets_the_generator(one)))
    ]
    missing = [*ledger.faults, *_differences(launches, lost, [item for item in left if item not in other])]
    missing += _several(launches, kernels, work)
    missing += [f"{launch.op}: {launch.unknown}" for launch in launches if launch.unknown is not None]
    shown = [f"{item.name} ({item.kind})" for item in other]
    return Alignment(kernels=tuple(kernels), missing=tuple(missing), other=tuple(shown))


def _is_copy(item: DeviceWork) -> bool:
    return item.kind == "memcpy" or any(name in COPIES for name, _ in item.ops)


def _sets_the_generator(launch: Launch) -> bool:
    """Whether it may be one of the two numbers that PyTorch sets before a capture: the generator's seed and offset."""
    return launch.op == "aten::fill_" and sum(access.bytes for access in launch.writes) == 8


def _differences(launches: Sequence[Launch], lost: Sequence[str], left: Sequence[DeviceWork]) -> list[str]:
    found = []
    if any(_COMPILED.match(item.name) for item in left) and not any(one.source == "inductor" for one in launches):
        found.append("the trace shows compiled kernels, but the code that the ledger watched was not compiled")
    found += [f"a kernel missing from the ledger: {item.name}" for item in left]
    return found + [f"a launch missing from the trace: {op}" for op in lost]


def _several(launches: Sequence[Launch], kernels: Sequence[tuple[int, ...]], work: Sequence[DeviceWork]) -> list[str]:
    """Third-party operators with several kernels, observed as one launch: these may pass values to one another.

    Several kernels of one of PyTorch's own operators share a workspace, which is no value of the call.
    """
    fills = {item.kernel for item in work if item.kind == "memset"}
    itself = {item.kernel: item.name for item in work}
    found = []
    for launch, mine in zip(launches, kernels, strict=True):
        count = len(set(mine) - fills)
        if launch.source != "operator" or launch.op.startswith(_OWN):
            continue
        if count > 1:
            found.append(f"{launch.op} has {count} kernels, and the values passed between them were not observed")
        elif any(itself[index] == launch.op for index in mine):  # on a CPU the operator is all that a trace shows
            found.append(f"{launch.op}: what it runs inside was not observed")
    return found


def _units(launches: Sequence[Launch], names: set[str]) -> list[list[int]]:
    """The launches that the trace can show apart: on a CPU it has a custom operator, not what runs inside it."""
    units: list[list[int]] = []
    last = None
    for index, launch in enumerate(launches):
        together = launch.inside if launch.inside is not None and launch.inside[0] in names else None
        if together is not None and together == last:
            units[-1].append(index)
        else:
            units.append([index])
        last = together
    return units


def _pairs(launches: Sequence[Launch], work: Sequence[DeviceWork]) -> list[tuple[int, int, int]]:
    """(launch, first piece, number of pieces) for a longest common sequence of both."""
    rows, columns = len(launches), len(work)
    taken = [[_extent(launch, work, index) for index in range(columns)] for launch in launches]
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            score = max(best[row + 1][column], best[row][column + 1])
            count = taken[row][column]
            if count:
                score = max(score, count + best[row + 1][column + count])
            best[row][column] = score
    pairs = []
    row = column = 0
    while row < rows and column < columns:
        count = taken[row][column]
        if count and best[row][column] == count + best[row + 1][column + count]:
            pairs.append((row, column, count))
            row, column = row + 1, column + count
        elif best[row][column] == best[row][column + 1]:
            column += 1
        else:
            row += 1
    return pairs


def _extent(launch: Launch, work: Sequence[DeviceWork], first: int) -> int:
    """How many pieces from `first` on belong to this launch, if it is one that the first can come from; else 0."""
    item = work[first]
    if launch.inside is not None and item.name == launch.inside[0]:
        return 1
    if launch.kernel is not None:
        return int(_CPP_GRAPH.sub("", item.name) == _CPP_GRAPH.sub("", launch.kernel))
    if item.replayed:  # a graph's kernels have no operator: only their kind can be compared
        matrix = launch.op.rpartition("::")[2] in _MATRIX
        return int(item.kind == "gemm" if matrix else item.kind not in ("gemm", "memset"))
    owner = next((entry for entry in item.ops if entry[0] == launch.op), None)
    if owner is None:
        return 0
    last = first
    while last < len(work) and owner in work[last].ops:
        last += 1
    return last - first
