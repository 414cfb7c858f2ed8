"""The one table of a page: the rows that ran, and as many columns as fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles_made import EAGER, HUB, LIGER, TRITON, profile, timed
from support.recorded_profiles import RECORDED, profiles_in

from mlpfusion.backend import built_in
from mlpfusion.report.profile.table import render
from mlpfusion.storage.letters import markdown

if TYPE_CHECKING:
    from pathlib import Path


def table_lines(text: str) -> list[str]:
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.lstrip("| ").startswith("backend "))
    return lines[start : lines.index("", start)]


def test_it_has_the_rows_that_ran_and_no_other() -> None:
    lines = table_lines(render(profile(timed("eager", 100), LIGER, HUB, TRITON)))
    assert [line.split()[0] for line in lines[2:]] == ["eager", "triton"]


def test_everything_else_is_there_in_full() -> None:
    text, full = render(profile()), render(profile(), full=True)
    for part in ("Kernels", "Host", "µs to first launch", "asked for nothing special"):
        assert part in full
    assert "Kernels" not in text
    assert "asked for nothing special" not in text
    github = render(profile(), "github")
    assert github.count("|---") < render(profile(), "github", full=True).count("|---")


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_every_recorded_profile_fits(fmt: str) -> None:
    found = [each for path in RECORDED for each in profiles_in(path)]
    assert len(found) > 10
    for each in found:
        lines = table_lines(render(each, fmt))
        assert fmt == "github" or max(map(len, lines)) <= 120
        assert ("speedup vs eager" in lines[0]) == any(row.backend == "eager" for row in each.rows)
        assert len(lines) == 2 + sum(row.status == "ok" for row in each.rows)


def heads(text: str, fmt: str) -> list[str]:
    line = table_lines(text)[0]
    return [each.strip() for each in (line.strip("|").split("|") if fmt == "github" else re.split("  +", line.strip()))]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_markdown_has_the_columns_of_the_text(path: Path) -> None:
    for each in profiles_in(path):
        assert heads(render(each, "github"), "github") == heads(render(each), "text")


TIMES = st.floats(1e-3, 999_999_999)


@pytest.mark.full  # eight seconds; the lines are counted above
@pytest.mark.parametrize("fmt", ["text", "github"])
@given(st.lists(st.tuples(TIMES, TIMES, st.integers(1, 9)), min_size=11, max_size=11), st.sampled_from([5, 30, 90]))
def test_eleven_backends_of_any_times_and_names_fit(
    fmt: str, given_times: list[tuple[float, float, int]], width: int
) -> None:
    rows = [
        timed(f"{place:x}{name:_<{width}}"[:width], *three[:2], three[0] * three[2])
        for place, (name, three) in enumerate(zip(built_in(), given_times, strict=True))
    ]
    rows += [msgspec.structs.replace(TRITON, backend=f"emulated{'_' * width}"[:width], accuracy=EAGER.accuracy)]
    lines = table_lines(render(profile(*rows), fmt))
    assert fmt == "github" or max(map(len, lines)) <= 120
    assert heads(render(profile(*rows), fmt), fmt) == heads(render(profile(*rows)), "text")
    assert len(lines) == 2 + len(rows)
    assert "event µs [p20–p80]" in lines[0]
    assert "speedup vs eager" in lines[0]
    if width <= 30:
        written = markdown if fmt == "github" else str
        assert all(written(row.backend) in line for row, line in zip(rows, lines[2:], strict=False))
