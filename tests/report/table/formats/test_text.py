"""Plain text and GitHub Markdown."""

from __future__ import annotations

import pytest
from support.races_made import HOSTILE, failed, profile, source

from mlpfusion.report.table.document import Options, document
from mlpfusion.report.table.formats.text import cells_of, render


def made(*names: str, tokens: tuple[int, ...] = (16,), github: bool = False) -> str:
    sources = [
        source(
            profile(dict.fromkeys(("fused", *names), 0.5), n, extra=(failed("hub", "; ".join(names) or "no"),)), f"{n}"
        )
        for n in tokens
    ]
    return render(document(sources, Options()), github=github)


def test_the_best_is_marked_and_columns_stay_aligned() -> None:
    lines = made().splitlines()
    fused = next(line for line in lines if line.startswith("fused"))
    assert fused.count("* ") == 2
    eager = next(line for line in lines if line.startswith("eager"))
    assert len(eager) == len(fused)


def test_github_marks_the_best_in_bold() -> None:
    fused = next(line for line in made(github=True).splitlines() if line.startswith("| fused"))
    assert fused.count("**") == 4


def test_what_the_line_above_says_is_left_out() -> None:
    found = document([source(profile({"fused": 0.5}, n), f"{n}") for n in (16, 256)], Options()).tables[0]
    assert [[row[0].text for row in cells_of(group, found)] for group in found.groups[:2]] == [["16", ""], ["256", ""]]


@pytest.mark.parametrize("github", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_steers_the_reader_or_breaks_a_line(name: str, github: bool) -> None:
    plain, hostile = made("other", github=github), made(name, github=github)
    assert len(hostile.splitlines()) - len(plain.splitlines()) in range(-3, 30)
    assert all(letter.isprintable() or letter == "\n" for letter in hostile)
    assert max(map(len, hostile.split("\n\n")[1].splitlines())) < 400
    if github:
        rows = [line for line in hostile.splitlines() if line.startswith("|")]
        bars = {line.replace("\\|", "").count("|") for line in rows}
        assert len(bars) == 1
        assert "<script" not in hostile
