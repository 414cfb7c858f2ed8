"""Host time before the first launch and between launches, as a table of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.records.profile import PreOpParts
from mlpfusion.report.grid import middle_out, tabulated
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading

_FRAMES: Final = 5  # that are shown
_PARTS: Final = {
    "dynamo_cache_lookup": "Dynamo's look-up of the compiled code and its guards",
    "compiled_region_self": "the compiled region around what follows",
    "pregraph": "Dynamo's bytecode before the graph",
    "aot_prologue": "AOT's wrapper",
    "compiled_graph_entry": "entering the compiled graph",
    "autograd_function": "autograd functions",
    "triton_launcher": "Triton's launcher",
    "dispatch": "PyTorch's operators",
    "runtime": "API calls of the driver and the runtime",
    "unattributed": "in no operator and no API call: Python, mostly",
}


def pre_ops_table(reading: Reading, *, github: bool) -> tuple[str, str] | None:
    """The title and the table, or None where the trace does not say."""
    found = reading.analysis.pre_ops
    if found.time_to_first_launch is None or reading.pre_ops_reason is not None:
        return None
    first = f" ({found.first_launch})" if found.first_launch else ""
    what = "launch" if reading.device == "cuda" else "operator that computes"
    title = (
        f"Host µs before the first {what}{first}: {units.plain(found.time_to_first_launch)}, "
        f"the parts of the median call (n = {found.n})"
    )
    if found.time_to_first_kernel is not None and reading.device == "cuda":
        title += f"; before the first kernel {units.plain(found.time_to_first_kernel)}"
    between = found.between_launches
    cells = [
        [name, _PARTS[name], _part(found, name), _part(between, name)]
        for name in PreOpParts.__struct_fields__
        if _part(found, name) != ABSENT
    ]
    cells += _frames(reading)
    heads = ["part", "what it is", "before the first", "between launches"]
    return title, tabulated(cells, heads, [False, False, True, True], github=github)


def _frames(reading: Reading) -> list[list[str]]:
    """What of the unattributed time is in which frame of Python's, where the trace has them."""
    if reading.python is None:
        return []
    first = {one.name: one.us for one in reading.python.before_first}
    between = {one.name: one.us for one in reading.python.between_launches}
    known = reading.analysis.pre_ops.between_launches is not None
    most = sorted({*first, *between}, key=lambda name: (-first.get(name, 0.0) - between.get(name, 0.0), name))
    return [
        [
            "- in Python",
            middle_out(name),
            units.plain(first.get(name, 0.0)),
            units.plain(between.get(name, 0.0)) if known else ABSENT,
        ]
        for name in most[:_FRAMES]
    ]


def _part(parts: PreOpParts | None, name: str) -> str:
    value = getattr(parts, name, None)
    return ABSENT if value is None else units.plain(value)
