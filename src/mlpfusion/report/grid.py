"""Tables and names as text, for all reports: cells in columns, Markdown, CSV, a kernel's name on one line."""

from __future__ import annotations

import csv
import io
import textwrap
from typing import TYPE_CHECKING, Final, NamedTuple

from tabulate import tabulate

from mlpfusion import units
from mlpfusion.storage.letters import markdown, printable
from mlpfusion.trace.names.shown import shown
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Decoded, Kernel

FORMATS: Final = ("text", "github", "csv", "json")
_NAME_WIDTH: Final = 64
WIDTH: Final = 200  # characters that a line of a trace's page may have
_LEAST: Final = 12  # of a column that is made narrower
_PADDING: Final = 2  # which tabulate adds to heads, and between columns


class Grid(NamedTuple):
    """Cells under their heads with a title; `right` columns are aligned to the right."""

    title: str
    heads: list[str]
    cells: list[list[str]]
    right: list[bool]

    def text(self, *, github: bool) -> str:
        """The cells as plain text or GitHub Markdown, without the title."""
        return tabulated(self.cells, self.heads, self.right, github=github)


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of equal keys as CSV with a header, or nothing without a row."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return printable(text.getvalue())


def titled(title: str, table: str, *, github: bool) -> str:
    """A table with a line above it."""
    if not title:
        return table
    return f"**{markdown(title)}**\n\n{table}" if github else f"{title}\n{table}"


def tabulated(
    cells: list[list[str]], heads: list[str], right: list[bool], *, github: bool, is_markdown: bool = False
) -> str:
    """Cells under their heads, as plain text or GitHub Markdown; `right` columns are aligned to the right.

    `is_markdown` says that cells and heads are Markdown already.
    """
    if github and not is_markdown:
        cells = [[markdown(cell.replace("\n", " ")) for cell in line] for line in cells]
        heads = [markdown(head) for head in heads]
    if not cells:
        return "no rows"
    text: str = tabulate(
        cells,
        headers=heads,
        tablefmt="github" if github else "simple",
        colalign=["right" if flag else "left" for flag in right],
        disable_numparse=True,  # "1e3" in a name is no number
    )
    return text


def fitted(cells: list[list[str]], heads: list[str], right: list[bool], longest: int = WIDTH) -> list[list[str]]:
    """The cells with the middle of long texts gone, so that no line of their table is longer than `longest`."""
    lengths = [
        [len(head) + _PADDING, *map(len, column)] for head, column in zip(heads, zip(*cells, strict=True), strict=True)
    ]
    widths = [max(column) for column in lengths]
    spare = longest - _PADDING * (len(heads) - 1) - sum(widths)
    while spare < 0:
        able = [at for at, flag in enumerate(right) if not flag and widths[at] > max(_LEAST, lengths[at][0])]
        if not able:
            break
        widest = max(able, key=lambda at: widths[at])
        widths[widest] -= 1
        spare += 1
    return [
        [middle_out(cell, width) if len(cell) > width else cell for cell, width in zip(line, widths, strict=True)]
        for line in cells
    ]


def folded(line: str, indent: int) -> str:
    """A line, and where it is longer than `WIDTH`, more that begin `indent` characters further in."""
    if len(line) <= WIDTH:
        return line
    return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False))


def clock_time(clock: Clock | None) -> str:
    """A clock's median and its spread in µs; without a spread it is not printed."""
    if clock is None or clock.p20 is None or clock.p80 is None:
        return ABSENT
    return units.with_spread(clock.median, clock.p20, clock.p80)


def kernel_time(kernel: Kernel) -> str:
    """A kernel's median time and its spread in µs; without a spread it is not printed."""
    if kernel.time_us is None or kernel.p20_us is None or kernel.p80_us is None:
        return ABSENT
    return units.with_spread(kernel.time_us, kernel.p20_us, kernel.p80_us)


def decoded_text(decoded: Decoded) -> str:
    """The most telling fields of a name."""
    known = decoded.library is not None or decoded.kind == "other"
    parts = [
        decoded.library if known else f"likely {decoded.kind}",
        decoded.arch,
        decoded.dtype,
        decoded.tile,
        decoded.layout,
    ]
    if decoded.stages is not None:
        parts.append(f"{decoded.stages} stages")
    if decoded.fused_ops:
        parts.append("+".join(decoded.fused_ops))
    if decoded.form:
        parts.append(decoded.form)
    if decoded.head_dim is not None:
        parts.append(f"head {decoded.head_dim}")
    return " ".join(part for part in parts if part)


def shorten(name: str, width: int = _NAME_WIDTH) -> str:
    """A kernel's name on one short line: the function alone, demangled."""
    return middle_out(shown(name), width)


def middle_out(text: str, width: int = _NAME_WIDTH) -> str:
    """`text` on one line with what is too long gone from its middle; no backtick, which would end code in Markdown."""
    short = " ".join(text.split()).replace("`", "'")
    return short if len(short) <= width else f"{short[: width // 2]}…{short[len(short) - (width - width // 2 - 1) :]}"


def clipped(text: str, width: int) -> str:
    """`text` on one line of at most `width` letters; what is too long ends in an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"
