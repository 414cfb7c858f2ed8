"""Makes what a page is tested with: sources of records, names that try to break out of it, and the page as parsed."""

from __future__ import annotations

import hashlib
import random
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlpfusion.report.page import page
from mlpfusion.report.page.sources import Source
from mlpfusion.report.profile.columns.clocks import CLOCKS
from mlpfusion.storage import results
from support import profiles_made as made
from support.paths import RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile
    from mlpfusion.storage.results import Result

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "'\"><b onmouseover=alert(3)>",
    "\u202egpj.exe\u202c\u200f",
    "<!-- --> ]]> {{ 7 * 7 }} {% raw %}",
    "\\textbf{%_#&$~^} | `a` µ×−≥",
    "Kernel<" + "std::tuple<" * 900 + "int" + ">" * 900,
)


def source(result: Result, name: str = "result.json") -> Source:
    data = results.encode(result).encode()
    return Source(name, Path(name), result, data, hashlib.sha256(data).hexdigest(), result.schema)


def rendered(*found: Result) -> str:
    return page.render([source(each, f"{number}.json") for number, each in enumerate(found)], "0.1.0")


def hostile() -> Result:
    """A profile whose every name tries to be markup."""
    rows = [
        made.timed(name, 90.0 + number, 91.0 + number, kernels=(made.kernel(name, "other", 3.0),), launches=None)
        for number, name in enumerate(HOSTILE)
    ]
    eager = made.timed("eager", 100.0, kernels=(), launches=None)
    return made.profile(eager, *rows)


def many(count: int) -> Iterator[Profile]:
    """Profiles of ten backends with all samples, as one was recorded, of so many token counts; no two times alike."""
    recorded = results.load(RESULTS / "h200-profile.json")
    chance = random.Random(count)

    def scaled(clock: Clock | None) -> Clock | None:
        if clock is None:
            return None
        by = chance.uniform(0.9, 1.1)
        rounds = tuple(tuple(None if each is None else each * by for each in one) for one in clock.rounds)
        median = statistics.median(each for one in rounds for each in one if each is not None)
        ends = {name: getattr(clock, name) and getattr(clock, name) * by for name in ("p20", "p80")}
        return replace(clock, rounds=rounds, median=median, **ends)

    for number in range(count):
        tokens = 64 * (number + 1)
        rows = [
            replace(
                row,
                tokens=tokens,
                clocks=replace(row.clocks, **{each: scaled(getattr(row.clocks, each)) for each in CLOCKS}),
            )
            for row in recorded.rows
            if row.status == "ok"
        ]
        workload = replace(recorded.workload, batch=1, seq=tokens)
        yield replace(recorded, workload=workload, rows=tuple(rows[:10]))


class Read(HTMLParser):
    """A page as parsed: its elements by name, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._within.pop()

    def handle_data(self, data: str) -> None:
        if not self._within:
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]
