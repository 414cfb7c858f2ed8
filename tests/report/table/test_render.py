"""Every kind of file in every format, and as a page where it is one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.command import run
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.report.table import render
from mlpfusion.report.table.document import Options
from mlpfusion.stages.tabulate.sources import read

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(RESULTS.rglob("*.json"))

KINDS = {
    "profile": "h200-profile.json",
    "several profiles": "h200-traffic.json",
    "choice": "h200-choose-article/choice.json",
    "plan": "h200-choose-article/plan.json",
    "folder": "h200-choose-gemma-2b",
    "proof": "h200-prove-gemma-2b-fused-training.json",
    "script": "h200-groups.json",
}


@pytest.mark.parametrize("fmt", render.FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_table_in_every_format(kind: str, fmt: str) -> None:
    text = render.tables(read([str(RESULTS / KINDS[kind])]), fmt, Options())
    assert text.endswith("\n")
    assert len(text.splitlines()) > 3
    if fmt == "json":
        assert json.loads(text)["tables"]
    if fmt == "latex":
        assert text.count(r"\begin{table}") == text.count(r"\bottomrule")


@pytest.mark.full  # all files; the first ring has one of each kind
@pytest.mark.parametrize("fmt", render.FORMATS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_no_recorded_file_is_refused_in_any_format(path: Path, fmt: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "table", str(path), "--format", fmt)
    assert (code, err) == (0, "")
    assert out.strip()


def test_files_of_different_kinds_are_one_document() -> None:
    found = read([str(RESULTS / name) for name in ("h200-profile.json", "h200-groups.json")])
    text = render.tables(found, "text", Options())
    assert "speedup vs eager" in text
    assert "groups: h200-groups.json" in text


def test_a_page_is_what_the_verb_showed() -> None:
    (found,) = read([str(RESULTS / "h200-profile.json")])
    assert "fastest" in render.pages([found], "text")
    assert len(render.pages([found], "text", full=True)) > len(render.pages([found], "text"))
    with pytest.raises(UsageError, match="--full is for --format text"):
        render.pages([found], "latex", full=True)


def test_what_is_asked_of_rows_is_refused_where_there_are_none() -> None:
    path = str(RESULTS / "h200-groups.json")
    with pytest.raises(UsageError, match=r"--sort is for rows of backends, and .* holds a 'groups'"):
        render.tables(read([path]), "text", Options(sort="tokens"), ["--sort"])


def test_samples_are_those_of_the_rows_that_are_named() -> None:
    found = read([str(RESULTS / "h200-profile.json")])
    lines = render.long(found, Options(rows=("eager",))).splitlines()
    assert {line.split(",")[lines[0].split(",").index("backend")] for line in lines[1:]} == {"eager"}
