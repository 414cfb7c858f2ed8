"""Renders a comparison as text, GitHub Markdown or JSON: settings, the control, times, facts, and what follows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.github_comment import fitting
from mlpfusion.report.grid import clipped, middle_out, tabulated, titled
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import code, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlpfusion.records.comparison import ClockChange, Comparison, FactChange, GroupChange, RowChange, SelfComparison

FORMATS: Final = ("text", "github", "json")
MOST_CHARACTERS: Final = 60_000  # of Markdown; GitHub takes comments of up to 65,536
_DEVICE: Final = ("graph_us", "kernel_us")
_MOST_ROWS: Final = 100  # of a page that would be too long otherwise
_FACT_WIDTH: Final = 100
_WIDEST: Final = 1000.0  # of the ends of an interval, and its inverse
_MARK: Final = "\0"  # around what is Markdown already; printable text has none
_WEIGHTS: Final = {"refused": "compared by --force", "question": "differs", "unrecorded": "not recorded in one"}


class _Page(NamedTuple):
    """How a page is written: GitHub Markdown or text, every clock or those that matter, and which rows."""

    github: bool
    full: bool
    shows: Callable[[RowChange], bool]
    most: int | None = None

    def line(self, text: str) -> str:
        """One line of a list, in which what `named` gave stays as it is."""
        if not self.github:
            return text.replace(_MARK, "")
        parts = text.split(_MARK)
        return f"- {''.join(part if place % 2 else markdown(part) for place, part in enumerate(parts))}"

    def name(self, text: str, width: int = 64) -> str:
        """A name that a third party may have chosen: in Markdown as code, in which nothing has a meaning."""
        short = middle_out(" ".join(text.replace(_MARK, " ").split()), width)
        return code(short) if self.github else short

    def named(self, text: str, width: int = 64) -> str:
        """The same inside of a line."""
        return f"{_MARK}{self.name(text, width)}{_MARK}"


def render(found: Comparison, fmt: str = "text", *, full: bool = False) -> str:
    """A comparison in one of `FORMATS`; ends with a newline. `full` shows every clock of every row.

    Markdown that GitHub would refuse as too long shows the rows that changed alone.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    github = fmt == "github"
    text = _written(found, _Page(github, full, lambda _: True))
    if github and len(text) > MOST_CHARACTERS:
        text = fitting([_written(found, _Page(github, False, _is_changed, _MOST_ROWS))], MOST_CHARACTERS)
    return text


def _written(found: Comparison, page: _Page) -> str:
    return printable("\n\n".join(block for block in _blocks(found, page) if block) + "\n")


def _blocks(found: Comparison, page: _Page) -> Iterator[str]:
    yield "\n".join(
        [
            page.line(f"baseline: {page.named(found.baseline)}"),
            page.line(f"candidate: {page.named(found.candidate)}"),
            *(page.line(line) for line in _meaning(found)),
            *(page.line(note) for note in found.notes),
        ]
    )
    yield _settings(found, page)
    left = page.most
    for group in found.groups:
        rows = [row for row in group.rows if page.shows(row)]
        kept = rows if left is None else rows[:left]
        left = None if left is None else left - len(kept)
        if kept:
            yield titled(group.title, _group(group, kept, page), github=page.github)
    yield "\n".join(page.line(line) for line in _conclusion(found, page))


def _meaning(found: Comparison) -> Iterator[str]:
    """What the ratios of the page are, if there are any."""
    if not any(change.ratio is not None for row in found.rows for change in row.times):
        return
    taken_out = ", the control's change taken out" if any(group.control for group in found.groups) else ""
    interval = f"[interval of {found.confidence:.0%} confidence]"
    yield f"ratio: baseline's time / candidate's{taken_out}, {interval}; {speedup.DIRECTION}"
    yield f"threshold: {100 * found.threshold:g}%; a smaller change is none"


def _settings(found: Comparison, page: _Page) -> str:
    cells = [
        [clipped(one.name, 60), clipped(one.baseline, 60), clipped(one.candidate, 60), _WEIGHTS[one.weight]]
        for one in found.settings
    ]
    return (
        tabulated(cells, ["measured with", "baseline", "candidate", ""], [False] * 4, github=page.github)
        if cells
        else ""
    )


# ---- one workload ----------------------------------------------------------------------------------------------------


def _group(group: GroupChange, rows: Sequence[RowChange], page: _Page) -> str:
    blocks = ["\n".join(page.line(line) for line in _control(group, page))]
    cells = [_cells(row, change, first, page) for row in rows for first, change in _shown(row, page)]
    heads = ["row", "clock", "baseline µs", "candidate µs", "change", "ratio", "verdict"]
    if cells:
        blocks.append(tabulated(cells, heads, [False, False, True, True, True, True, False], github=page.github))
    facts = [
        [page.name(_named(row)), fact.name, *_sides(fact, page), "worse" if fact.worse else ""]
        for row in rows
        for fact in row.facts
    ]
    if facts:
        blocks.append(tabulated(facts, ["row", "fact", "baseline", "candidate", ""], [False] * 5, github=page.github))
    blocks.append("\n".join(page.line(f"{page.named(_named(row))}: {row.note}") for row in rows if row.note))
    return "\n\n".join(block for block in blocks if block) or page.line("nothing that is compared differs")


def _control(group: GroupChange, page: _Page) -> Iterator[str]:
    if group.control is not None:
        parts = [
            f"{each.clock} {_us(each.baseline_us)} → {_us(each.candidate_us)} µs ({_percent(each)})"
            for each in group.control_times
        ]
        yield f"control {page.named(group.control)}: {', '.join(parts)}"
    yield from group.notes


def _shown(row: RowChange, page: _Page) -> Iterator[tuple[bool, ClockChange]]:
    """The device's clock, that of a plain call and any that changed, and whether each is the row's first."""
    device = next((change.clock for name in _DEVICE for change in row.times if change.clock == name), None)
    named = {device, "event_us"} if device or any(change.clock == "event_us" for change in row.times) else {"wall_us"}
    kept = [change for change in row.times if page.full or change.clock in named or change.word in ("slower", "faster")]
    yield from ((place == 0, change) for place, change in enumerate(kept))


def _cells(row: RowChange, change: ClockChange, first: bool, page: _Page) -> list[str]:
    ratio = ABSENT
    if change.ratio is not None and change.low is not None and change.high is not None:
        ratio = _interval(change.ratio, change.low, change.high)
    return [
        page.name(_named(row)) if first else "",
        change.clock,
        _us(change.baseline_us),
        _us(change.candidate_us),
        _percent(change),
        ratio,
        _verdict(change),
    ]


def _interval(ratio: float, low: float, high: float) -> str:
    """A ratio with its interval; noise that tells nothing needs no thirty digits."""
    if low >= 1 / _WIDEST and high <= _WIDEST:
        return units.ratio(ratio, low, high)
    ends = [f"<{1 / _WIDEST:g}" if end < 1 / _WIDEST else f">{_WIDEST:g}" if end > _WIDEST else units.plain(end)
            for end in (low, high)]  # fmt: skip
    return f"{units.times(min(max(ratio, 1 / _WIDEST), _WIDEST))} [{'–'.join(ends)}]"


def _verdict(change: ClockChange) -> str:
    """The word with what it rests on, or why there is none."""
    if change.word is None:
        return f"not decisive: {change.reason}"
    mark = f", {change.reason}" if change.reason else ""
    if change.word != "inconclusive":
        return f"{change.word}{mark}"
    told = "more than 100" if change.needed is None else str(change.needed)
    return f"inconclusive{mark}; {told} processes a side would tell"


def _percent(change: ClockChange) -> str:
    """How much longer the candidate's median is: nothing is taken out of it."""
    if not change.baseline_us or not change.candidate_us:
        return ABSENT
    share = round(100 * (change.candidate_us / change.baseline_us - 1), 1)
    return f"{share:+.1f}%" if share else "0.0%"


def _us(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}" if value >= 100 else units.plain(value)


def _sides(fact: FactChange, page: _Page) -> list[str]:
    return [page.name(each, _FACT_WIDTH) for each in (fact.baseline, fact.candidate)]


def _named(row: RowChange) -> str:
    return row.baseline if row.baseline == row.candidate else f"{row.baseline} → {row.candidate}"


# ---- what follows ----------------------------------------------------------------------------------------------------


def _is_changed(row: RowChange) -> bool:
    return row.is_regression or row.word == "faster"


def _conclusion(found: Comparison, page: _Page) -> Iterator[str]:
    counts = Counter(row.word for row in found.rows if row.word is not None)
    if counts:
        means = [f"{clock} {units.times(mean)}" for clock, mean in found.geometric_means.items()]
        of_all = f"; geometric mean of the ratios: {', '.join(means)}" if means else ""
        yield f"rows: {', '.join(f'{number} {word}' for word, number in sorted(counts.items()))}{of_all}"
    bad = [row for row in found.rows if row.is_regression]
    listed = [f"{page.named(_named(row))} ({', '.join(_worse(row))})" for row in bad[:_MOST_ROWS]]
    yield f"regressions: {', '.join(listed) if listed else 'none'}"
    if page.most is not None:
        yield "rows without a change are left out, and what is beyond the first rows: --format json has all"
    for side, only in (("baseline", found.only_baseline), ("candidate", found.only_candidate)):
        if only:
            more = f" and {len(only) - 12} more" if len(only) > 12 else ""
            yield f"in the {side} alone: {', '.join(clipped(each, _FACT_WIDTH) for each in only[:12])}{more}"


def _worse(row: RowChange) -> list[str]:
    slow = [f"slower by {change.clock}" for change in row.times if change.word == "slower"]
    fast = [change.clock for change in row.times if change.word == "faster"]
    slow += [f"though faster by {' and '.join(fast)}"] if slow and fast else []
    return slow + [f"{fact.name} {clipped(fact.candidate, 40)}" for fact in row.facts if fact.worse]


# ---- a file against itself -------------------------------------------------------------------------------------------


def render_self(found: SelfComparison, fmt: str = "text") -> str:
    """The false alarms of a file's processes against each other, in one of `FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    page = _Page(fmt == "github", False, lambda _: True)
    cells = [
        [
            clipped(row.group, _FACT_WIDTH),
            page.name(row.backend),
            row.clock,
            str(row.processes),
            f"{100 * row.spread:.2f}%",
            f"{row.alarms} of {row.splits}" if row.splits else "not judged",
            f"{100 * row.largest:.2f}%",
        ]
        for row in found.rows
    ]
    heads = ["workload", "row", "clock", "processes", "spread", "false alarms", "largest difference"]
    table = tabulated(cells, heads, [False] * 3 + [True] * 4, github=page.github)
    said = (
        f"{found.alarms} of {found.splits} splits, {found.alarms / found.splits:.2%}" if found.splits else "not judged"
    )
    lines = [
        page.line(f"source: {page.named(found.source)}"),
        page.line("spread: standard deviation between processes of the time relative to the control's"),
        *(page.line(note) for note in found.notes),
    ]
    end = page.line(f"false alarms: {said}")
    return printable("\n\n".join(["\n".join(lines), table, end]) + "\n")
