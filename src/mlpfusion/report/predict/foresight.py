"""Renders the predicted choice for a card that is not here as text, Markdown, CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, csv_text, tabulated, titled
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.prediction import Foreseen, ForeseenPoint, Foresight


def render(found: Foresight, fmt: str = "text", *, explain: bool = False) -> str:
    """A foresight in one of `grid.FORMATS`; ends with a newline. `explain` adds the measured products behind it.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    if fmt == "csv":
        return csv_text([_flat(found, point, each) for point in found.points for each in point.backends])
    github = fmt == "github"
    blocks = [
        _header(found, github=github),
        titled("Least predicted time", _least(found, github=github), github=github),
        titled("Every backend", _backends(found, github=github), github=github),
    ]
    if explain:
        blocks.append(titled("Nearest measured products", _nearest(found, github=github), github=github))
    if found.model.notes:
        blocks.append("\n".join(f"- {markdown(note)}" if github else f"note: {note}" for note in found.model.notes))
    return printable("\n\n".join(blocks) + "\n")


def _header(found: Foresight, *, github: bool) -> str:
    spec, peaks = found.spec, found.peaks
    share = f", a share of one in {found.tp} cards" if found.tp > 1 else ""
    rates = f"{units.teraflops(peaks.flops_16bit)}, {units.gigabytes_per_second(peaks.bandwidth)}; {peaks.source}"
    title = f"predicted, not measured, for {found.card} ({rates})"
    lines = [
        ("model", f"{found.model.name} ({found.model.source})"),
        (
            "MLP",
            f"hidden_size {spec.hidden_size}, intermediate_size {spec.intermediate_size}{share}, {spec.activation}, "
            f"{spec.dtype}, {'bias' if spec.bias else 'no bias'}",
        ),
        ("rows", f"measured on {', '.join(dict.fromkeys(point.measured_on for point in found.points))}"),
        ("predicted", "the launches observed there, as if this card ran the same ones; without the time between them"),
        ("interval", "80%: of ten such times, eight are expected in it"),
        ("speedup", "the least predicted time / the backend's: 1 for the least, below 1 for the others"),
        ("tied", "its interval meets that of the least"),
        *(("note", note) for note in found.notes),
    ]
    if github:
        return f"**{markdown(title)}**\n\n" + "\n".join(
            f"- **{markdown(name)}**: {markdown(text)}" for name, text in lines
        )
    width = max(len(name) for name, _ in lines)
    return "\n".join([title, *(f"{name:<{width}}  {text}" for name, text in lines)])


def _least(found: Foresight, *, github: bool) -> str:
    heads = ["mode", "tokens", "backend", "predicted µs", "tied with", "of matrix rate", "of bandwidth", "as on"]
    cells = []
    for point in found.points:
        assumed = point.efficiency
        least = next((each for each in point.backends if each.verdict == "least"), None)
        ties = [each.backend for each in point.backends if each.verdict == "tied"]
        cells.append(
            [
                point.mode,
                str(point.tokens),
                point.least or ABSENT,
                _time(least),
                ", ".join(ties) or ABSENT,
                units.percent(assumed.compute if assumed else None),
                units.percent(assumed.memory if assumed else None),
                assumed.source if assumed else ABSENT,
            ]
        )
    return tabulated(cells, heads, [False, True, False, True, False, True, True, False], github=github)


def _backends(found: Foresight, *, github: bool) -> str:
    heads = [
        "mode",
        "tokens",
        "backend",
        "",
        "predicted µs",
        "80% interval",
        "speedup vs least",
        "from",
        "why not",
    ]
    cells = [
        [
            point.mode,
            str(point.tokens),
            each.backend,
            each.verdict,
            _time(each),
            _interval(each),
            ABSENT if each.ratio is None else units.times(speedup.inverse(each.ratio)),
            _origin(each),
            " ".join((each.reason or ABSENT).split()),
        ]
        for point in found.points
        for each in sorted(point.backends, key=lambda each: each.predicted_us or float("inf"))
    ]
    return tabulated(cells, heads, [False, True, False, False, True, True, True, False, False], github=github)


def _time(each: Foreseen | None) -> str:
    return ABSENT if each is None or each.predicted_us is None else units.plain(each.predicted_us)


def _interval(each: Foreseen) -> str:
    if each.low_us is None or each.high_us is None:
        return ABSENT
    return f"{units.plain(each.low_us)}–{units.plain(each.high_us)}"


def _origin(each: Foreseen) -> str:
    """Where the times of its launches come from, and whether any shape lies outside its table."""
    said = " + ".join(each.sources) or ABSENT
    said += ", extrapolated" if each.extrapolated else ""
    return said if each.guard is None else f"{said}; {each.guard}"


def _nearest(found: Foresight, *, github: bool) -> str:
    rows = {
        (str(point.tokens), step.role or step.op, f"{near.m} x {near.n} x {near.k}", units.plain(near.us), near.source)
        for point in found.points
        for each in point.backends
        for step in each.steps
        for near in step.nearest
    }
    if not rows:
        return "no launch rests on measured products of this card"
    heads = ["tokens", "kernel", "m x n x k", "measured µs", "by"]
    ordered = sorted(rows, key=lambda row: (int(row[0]), *row[1:]))
    return tabulated([list(row) for row in ordered], heads, [True, False, True, True, False], github=github)


def _flat(found: Foresight, point: ForeseenPoint, each: Foreseen) -> dict[str, object]:
    """One backend at one point as plain values; that it is predicted, and for which card, travels with every line."""
    return {
        "kind": found.kind,
        "model": found.model.name,
        "card": found.card,
        "measured_on": point.measured_on,
        **msgspec.to_builtins(found.spec),
        "tp": found.tp,
        "mode": point.mode,
        "tokens": point.tokens,
        "backend": each.backend,
        "verdict": each.verdict,
        "predicted_us": each.predicted_us,
        "speedup_vs_least": None if each.ratio is None else speedup.inverse(each.ratio),
        "low_us": each.low_us,
        "high_us": each.high_us,
        "sources": " + ".join(each.sources),
        "extrapolated": each.extrapolated,
        "reason": each.reason,
    }
