"""Renders a choice as text, Markdown, CSV or JSON: ranges, winners by token count, and why the others lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, Grid, clock_time, csv_text, tabulated, titled
from mlpfusion.report.host_load import disturbed
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.choice import Choice, ClockName, Contender, Point, Range

_MEANING: Final[dict[ClockName, str]] = {
    "event_us": "device events around a plain call, as in a model that runs without CUDA graphs",
    "graph_us": "replay of a CUDA graph of the call, as in a model that is replayed whole",
    "wall_us": "host time of the call, synchronised",
}


def render(choice: Choice, fmt: str = "text") -> str:
    """A choice in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(choice)
    if fmt == "csv":
        return csv_text([_flat(choice, point, each) for point in choice.points for each in point.contenders])
    github = fmt == "github"
    blocks = [header(choice, github=github), _below(ranges(choice), github=github)]
    blocks.append(titled("Winners", _winners(choice, github=github), github=github))
    blocks.append(titled("Every backend", _contenders(choice, github=github), github=github))
    notes = [*choice.model.notes]
    for each in choice.points:
        notes += [f"{_where(each)}: {said}" for said in (each.reason, disturbed(each.neighbours)) if said]
    if notes:
        blocks.append("\n".join(f"- {markdown(note)}" if github else f"note: {note}" for note in notes))
    return printable("\n\n".join(blocks) + "\n")


def header(choice: Choice, *, github: bool) -> str:
    """The model, the machine and the terms of a choice, one line each."""
    spec, where = choice.spec, choice.environment
    share = f", a share of one in {choice.tp} cards" if choice.tp > 1 else ""
    sizes = f"hidden_size {spec.hidden_size}, intermediate_size {spec.intermediate_size}{share}"
    names = (("torch", where.torch), ("triton", where.triton), ("driver", where.driver))
    versions = ", ".join(
        f"{name} {version or 'unknown'}" for name, version in (("mlpfusion", choice.mlpfusion), *names)
    )
    confidence = next((f"{r.confidence:.0%}" for p in choice.points for c in p.contenders if (r := c.ratio)), "95%")
    lines = [
        ("model", f"{choice.model.name} ({choice.model.source})"),
        ("MLP", f"{sizes}, {spec.activation}, {spec.dtype}, {'bias' if spec.bias else 'no bias'}"),
        ("device", choice.device.name),
        ("versions", versions),
        ("measured", f"{choice.created}, {choice.rounds} interleaved rounds for each number of tokens"),
        (choice.clock, f"{_MEANING[choice.clock]}; L2 {_l2(choice)}"),
        (
            "speedup",
            f"the winner's {choice.clock} / the backend's, median of paired rounds, [interval of {confidence} "
            f"confidence]; {speedup.DIRECTION} than the winner",
        ),
        ("tie", "that interval reaches 1; a tie with eager goes to eager"),
    ]
    if github:
        return "\n".join(f"- **{markdown(name)}**: {markdown(text)}" for name, text in lines)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _l2(choice: Choice) -> str:
    return next((c.clock.l2 for p in choice.points for c in p.contenders if c.clock is not None), "unknown")


# ---- the three tables ------------------------------------------------------------------------------------------------


def _below(grid: Grid, *, github: bool) -> str:
    return titled(grid.title, grid.text(github=github), github=github)


def ranges(choice: Choice) -> Grid:
    """Which backend is for which numbers of tokens."""
    heads = ["for", "mode", "tokens", "backend", "measured at"]
    cells = [
        [each.phase, each.mode, _tokens(each), f"{each.backend}{' (tie)' if each.tie else ''}", _listed(each.measured)]
        for each in choice.ranges
    ]
    return Grid("Ranges", heads, cells, [False] * len(heads))


def _tokens(each: Range) -> str:
    if each.last is None:
        return f"{each.first} and more" if each.first > 1 else "any"
    return f"{each.first}" if each.first == each.last else f"{each.first} to {each.last}"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _winners(choice: Choice, *, github: bool) -> str:
    heads = [
        "mode",
        "tokens",
        "chosen",
        _time_head(choice),
        "runner-up",
        "its speedup vs winner",
        "tie with",
        "peak MB",
    ]
    right = [False, True, False, True, False, True, False, True]
    cells = []
    for point in choice.points:
        found = {each.backend: each for each in point.contenders}
        chosen, second = found.get(point.chosen or ""), found.get(point.runner_up or "")
        ties = [name for name in (point.winner or "", *point.tied) if name != point.chosen] if point.tied else []
        cells.append(
            [
                point.mode,
                str(point.tokens),
                point.chosen or ABSENT,
                clock_time(chosen.clock if chosen else None),
                point.runner_up or ABSENT,
                speedup.cell(second.ratio if second else None),
                ", ".join(ties) or ABSENT,
                _peak(chosen),
            ]
        )
    return tabulated(cells, heads, right, github=github)


def _contenders(choice: Choice, *, github: bool) -> str:
    heads = ["mode", "tokens", "backend", "", _time_head(choice), "speedup vs winner", "peak MB", "why"]
    right = [False, True, False, False, True, True, True, False]
    cells = [
        [
            point.mode,
            str(point.tokens),
            each.backend,
            each.verdict,
            clock_time(each.clock),
            "1" if each.verdict == "won" else speedup.cell(each.ratio),
            _peak(each),
            " ".join((each.reason or ABSENT).split()),
        ]
        for point in choice.points
        for each in _by_time(point)
    ]
    return tabulated(cells, heads, right, github=github)


def _by_time(point: Point) -> list[Contender]:
    """Those with a time, the fastest first, then the rest as they came."""
    return sorted(point.contenders, key=lambda each: each.clock.median if each.clock else float("inf"))


# ---- cells -----------------------------------------------------------------------------------------------------------


def _time_head(choice: Choice) -> str:
    return f"{choice.clock.removesuffix('_us')} µs [p20–p80]"


def _peak(each: Contender | None) -> str:
    peak = each.memory.peak_bytes if each is not None and each.memory is not None else None
    return ABSENT if peak is None else units.plain(peak / 1e6)


def _where(point: Point) -> str:
    return f"{point.mode}, {point.tokens} tokens"


def _flat(choice: Choice, point: Point, each: Contender) -> dict[str, object]:
    """One backend at one point as plain values; the machine and the versions travel with every line."""
    clock, memory = each.clock, each.memory
    return {
        "model": choice.model.name,
        "device": choice.device.name,
        "torch": choice.environment.torch,
        "triton": choice.environment.triton,
        "created": choice.created,
        **msgspec.to_builtins(choice.spec),
        "tp": choice.tp,
        "mode": point.mode,
        "tokens": point.tokens,
        "backend": each.backend,
        "chosen": each.backend == point.chosen,
        "verdict": each.verdict,
        "clock": choice.clock,
        "us": clock and clock.median,
        "us_p20": clock and clock.p20,
        "us_p80": clock and clock.p80,
        "n": clock and clock.n,
        **speedup.fields("speedup_vs_winner", each.ratio),
        "peak_bytes": memory and memory.peak_bytes,
        "saved_for_backward_bytes": memory and memory.saved_for_backward_bytes,
        "reason": each.reason,
    }
