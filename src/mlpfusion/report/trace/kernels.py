"""The kernels of a call: a table in their order or by name, and lines of CSV."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.report.grid import decoded_text, fitted, kernel_time, middle_out, tabulated
from mlpfusion.report.trace.spreads import spread_text
from mlpfusion.storage.letters import code
from mlpfusion.trace.names.frames import module_class
from mlpfusion.trace.names.shown import told_apart
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import Reading

# More kernels than this are shown by name, with their number; so many rows are shown.
_LISTED: Final = 40


def kernel_table(reading: Reading, *, github: bool, everything: bool = False) -> tuple[str, str] | None:
    """The title and the table of a call's kernels, or None where it has none.

    More than `_LISTED` are by what they are, in rows with a count; so many rows are shown, with `everything` all.
    """
    kernels = reading.analysis.kernels
    if len(kernels) > _LISTED:
        return f"Kernels by name ({len(kernels)} a call)", _by_name(reading, github=github, everything=everything)
    return ("Kernels", _in_order(reading, github=github)) if kernels else None


def kernel_lines(reading: Reading) -> Iterable[dict[str, object]]:
    """One line for each kernel of a call; the trace, the device and the call travel with it."""
    spreads = reading.kernel_spread
    for index, kernel in enumerate(reading.analysis.kernels):
        spread = spreads[index] if index < len(spreads) and not reading.incomplete else None
        decoded = kernel.decoded
        yield {
            "source": reading.source,
            "device": reading.gpu or reading.device,
            "call": reading.call.name,
            "calls": reading.analysis.calls,
            "number": index + 1,
            "role": kernel.role,
            "name": kernel.name,
            "kind": decoded.kind,
            "library": decoded.library,
            "arch": decoded.arch,
            "dtype": decoded.dtype,
            "tile": decoded.tile,
            "stages": decoded.stages,
            "layout": decoded.layout,
            "fused_ops": "+".join(decoded.fused_ops),
            "operator": kernel.op,
            "module": "/".join(reading.modules[index]) if index < len(reading.modules) else None,
            "launched_by": kernel.launched_by,
            "n": spread.n if spread else None,
            "time_us": spread.median if spread else None,
            "low_us": spread.low if spread else None,
            "high_us": spread.high if spread else None,
            "p20_us": spread.p20 if spread else None,
            "p80_us": spread.p80 if spread else None,
            "incomplete": reading.incomplete,
        }


def _in_order(reading: Reading, *, github: bool) -> str:
    names = _names(reading.analysis.kernels)
    launching = [_innermost(chain) for chain in reading.modules]
    cells = [
        [
            str(index),
            kernel.role,
            _code(names[kernel.name], github=github),
            decoded_text(kernel.decoded),
            kernel.op or ABSENT,
            *([launching[index - 1]] if launching else []),
            kernel.launched_by or ABSENT,
            time,
        ]
        for index, (kernel, time) in enumerate(zip(reading.analysis.kernels, _kernel_times(reading), strict=True), 1)
    ]
    heads = ["#", "role", "kernel", "decoded", "operator", *(["module"] if launching else []), "launched by", "µs"]
    right = [head in ("#", "µs") for head in heads]
    return tabulated(cells if github else fitted(cells, heads, right), heads, right, github=github)


class _Alike(NamedTuple):
    """Kernels of a call that are the same but for their layer: how many, and the sum of their medians in µs."""

    first: Kernel
    number: int
    us: float


def _alike(kernels: Sequence[Kernel]) -> list[_Alike]:
    """The kernels by name, role and operator, those with the most time first."""
    groups: dict[tuple[str, str, str | None], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.role, kernel.op), []).append(kernel)
    found = [_Alike(group[0], len(group), sum(one.time_us or 0.0 for one in group)) for group in groups.values()]
    return sorted(found, key=lambda one: -one.us)


def _by_name(reading: Reading, *, github: bool, everything: bool) -> str:
    rows = _alike(reading.analysis.kernels)
    whole = sum(one.us for one in rows) or 1.0
    shown = rows if everything else rows[:_LISTED]
    names = _names([one.first for one in rows])
    launching = _classes(reading)
    cells = [
        [
            str(one.number),
            one.first.role,
            _code(names[one.first.name], github=github),
            decoded_text(one.first.decoded),
            one.first.op or ABSENT,
            *([launching[one.first.name]] if launching else []),
            ABSENT if reading.incomplete else units.plain(one.us),
            ABSENT if reading.incomplete else f"{one.us / whole:.1%}",
        ]
        for one in shown
    ]
    left = rows[len(shown) :]
    if left:
        told = (
            [ABSENT] * 2
            if reading.incomplete
            else [units.plain(us := sum(one.us for one in left)), f"{us / whole:.1%}"]
        )
        more = f"{len(left)} more rows; --all shows them"
        cells.append([str(sum(one.number for one in left)), "", more, "", "", *([""] if launching else []), *told])
    modules = ["modules"] if launching else []
    heads = ["number", "role", "kernel", "decoded", "operator", *modules, "µs in all, of medians", "share"]
    right = [head in (heads[0], *heads[-2:]) for head in heads]
    return tabulated(cells if github else fitted(cells, heads, right), heads, right, github=github)


def _innermost(chain: Sequence[str]) -> str:
    """The two innermost modules around a launch: `LlamaMLP_0/Linear_4`."""
    return middle_out("/".join(chain[-2:])) or ABSENT


def _classes(reading: Reading) -> dict[str, str]:
    """By name of a kernel the classes of the innermost modules that launch it, the most frequent by name."""
    found: dict[str, Counter[str]] = {}
    for kernel, chain in zip(reading.analysis.kernels, reading.modules, strict=False):
        found.setdefault(kernel.name, Counter())[_innermost([module_class(one) for one in chain])] += 1
    return {
        name: classes.most_common(1)[0][0] + (f" and {len(classes) - 1} more" if len(classes) > 1 else "")
        for name, classes in found.items()
    }


def _kernel_times(reading: Reading) -> list[str]:
    kernels = reading.analysis.kernels
    if reading.incomplete:
        return [ABSENT] * len(kernels)
    if len(reading.kernel_spread) == len(kernels):
        return [spread_text(spread) for spread in reading.kernel_spread]
    return [kernel_time(kernel) for kernel in kernels]


def _names(kernels: Sequence[Kernel]) -> dict[str, str]:
    """By name what is shown of it in a table that has what is decoded beside it."""
    return told_apart((one.name for one in kernels), {one.name: decoded_text(one.decoded) for one in kernels})


def _code(name: str, *, github: bool) -> str:
    return code(middle_out(name)) if github else middle_out(name)
