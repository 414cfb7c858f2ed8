"""Fills the page: one HTML file that has all words and tables without a script, and fetches nothing."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.report.page import cases as case_parts
from mlpfusion.report.page import (
    cells,
    data,
    figures,
    findings,
    methods,
    policy,
    predicted,
    standings,
    summary,
    tables,
    verdicts,
)
from mlpfusion.report.page.cautions import cautions
from mlpfusion.stats import CONFIDENCE
from mlpfusion.storage import inputs
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.page.sources import Source

MARK: Final = "<!doctype html>\n<!-- mlpfusion report -->"  # how every page begins
_ASSETS: Final = Path(__file__).parent / "assets"
_LEVEL: Final = 6  # of gzip: 9 takes three times as long for a hundredth of the size


class Held(NamedTuple):
    """A file that the page carries: its bytes as gzip in base64; `unpack` says that they are no gzip on disk."""

    name: str
    packed: str
    unpack: bool


def render(sources: Sequence[Source], version: str, title: str | None = None) -> str:
    """The page of these files, as made by a version of mlpfusion; the same bytes for the same input.

    Raises:
        UsageError: Jinja2 is not installed.
    """
    found = case_parts.cases(sources)
    clock = case_parts.default_clock(found)
    ranked = [case_parts.standing(case, clock) for case in found]
    drawn, absent = figures.figures(sources, found, clock)
    sections = _sections(found, ranked, clock)
    if foreseen := predicted.tables(sources):
        sections.append(("predicted", "Predicted, not measured", foreseen))
    judged = verdicts.verdicts(sources)
    shown = [each.table for each in drawn]
    shown += [each.table for each in judged if each.table is not None]
    shown += [each for _, _, group in sections for each in group]
    style = _asset("page.css") + cells.styles(max((len(each.heads) for each in shown), default=1))
    scripts = [*(figures.scripts() if drawn else ()), _asset("page.js")]
    return str(
        _template().render(
            mark=MARK,
            policy=policy.policy(scripts, [style]),
            style=style,
            scripts=scripts,
            figures=drawn,
            absent=absent,
            licences=figures.licences() if drawn else (),
            specs=data.script_json(data.hoisted(_printable([each.specs for each in drawn]))),
            title=title or _title(found, sources),
            version=version,
            clock=clock,
            confidence=_confidence(found),
            measured=list(summary.measured(found, sources)),
            wins=list(standings.sentences(ranked, sources)),
            failed=list(summary.failed(found)),
            costs=list(summary.costs(ranked)),
            cautions=[
                *predicted.sentences(sources),
                *cautions(found, [each.name for each in sources if each.schema < each.result.schema]),
            ],
            choices=_choices(found),
            sections=sections,
            verdicts=judged,
            findings=findings.findings(found),
            methods=methods.methods(sources),
            others=methods.others(sources),
            held=[_held(each) for each in sources],
            numbers=data.script_json(_printable(data.numbers(found, clock))),
        )
    )


def _title(found: Sequence[Case], sources: Sequence[Source]) -> str:
    devices = list(dict.fromkeys(case.device.name for case in found))
    if not devices:
        return f"mlpfusion: {sources[0].name}"
    shapes = list(dict.fromkeys(case.shape for case in found))
    what = shapes[0] if len(shapes) == 1 else f"{len(shapes)} shapes"
    return f"Gated MLP {what} on {', '.join(devices)}"


def _confidence(found: Sequence[Case]) -> str:
    """The confidence of the intervals, the least of them."""
    clocks = [row.clocks for case in found for row in case.rows if row.clocks is not None]
    ratios = [
        clock.ratio_to_eager for each in clocks for clock in (each.event_us, each.wall_us, each.graph_us) if clock
    ]
    ratios += [each.to_winner for case in found for each in case.race.entries]
    return f"{min((ratio.confidence for ratio in ratios if ratio is not None), default=CONFIDENCE):.0%}"


def _choices(found: Sequence[Case]) -> dict[str, list[str]]:
    """What the filters offer."""
    return {
        "backends": list(dict.fromkeys(row.backend for case in found for row in case.rows)),
        "tokens": [str(tokens) for tokens in sorted({case.tokens for case in found})],
        "modes": list(dict.fromkeys(case.mode for case in found)),
        "clocks": list(case_parts.clocks_read(found)),
    }


def _sections(found: Sequence[Case], ranked: Sequence[Any], clock: Any) -> list[tuple[str, str, list[Any]]]:
    """The parts of the page that are tables: a name, a heading, and those that have a line."""
    parts = [
        ("results", "Results", [standings.table(ranked), tables.results(found, clock)]),
        ("kernels", "Kernels", [tables.kernels(found), tables.launches(found, clock), tables.host(found, clock)]),
        ("ledger", "Ledger", [tables.ledger(found, clock), tables.intermediates(found, clock)]),
        ("accuracy", "Accuracy", [tables.accuracy(found, clock)]),
        ("costs", "Costs", [tables.costs(found, clock)]),
    ]
    return [(key, head, [each for each in group if each.lines]) for key, head, group in parts]


def _held(source: Source) -> Held:
    name = source.name.rpartition("/")[2]
    packed = source.data
    plain = inputs.start(packed, 1) == packed[:1]
    if plain:
        packed, name = gzip.compress(packed, _LEVEL, mtime=0), f"{name}.gz"
    return Held(name, base64.b64encode(packed).decode(), plain)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _template() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError:
        raise UsageError(
            "`mlpfusion report` needs jinja2, which is not installed: pip install 'mlpfusion-read[report]'"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # a name may steer what shows it
    )
    environment.filters["parts"] = _parts
    return environment.get_template("page.html")


def _parts(text: str) -> list[str]:
    """A sentence by its backticks: every other part is code; a backtick without its partner is a letter of a name."""
    parts = text.split("`")
    return parts if len(parts) % 2 else [text]


def _printable(value: Any) -> Any:
    """The value with the same texts that the page shows."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(name): _printable(each) for name, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list | tuple) else value
