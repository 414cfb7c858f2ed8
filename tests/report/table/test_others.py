"""Tables of files that have no rows of backends, and of what a choice has beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from support.paths import RESULTS
from support.races_made import SPEC

from mlpfusion.records.proof import Proof
from mlpfusion.records.sweep.cells import Cell, Settings, Use, Work
from mlpfusion.records.sweep.study import Kept, Outcome, OverEager, Study
from mlpfusion.report.proof import render
from mlpfusion.report.table.others import tables
from mlpfusion.spec import Workload
from mlpfusion.stages.tabulate.sources import read
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("h200-choose-article/choice.json", ["Ranges"]),
        ("h200-choose-article/plan.json", ["Plan of a choice"]),
        ("h200-prove-gemma-2b-fused.json", ["Errors against fp64", "Time of the whole model"]),
        ("h200-validate.json.gz", ["validation-set"]),
        ("h200-groups.json", ["groups"]),
        ("h200-profile.json", []),
    ],
)
def test_each_kind_has_its_tables(name: str, titles: list[str]) -> None:
    found = tables(*read([str(RESULTS / name)]), alone=True)
    assert list(dict.fromkeys(table.title.split(":")[0] for table in found)) == titles
    for table in found:
        assert all(len(line.cells) == len(table.columns) for line in table.lines)


def test_a_proof_of_the_pass_says_so(tmp_path: Path) -> None:
    found = results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json")
    assert isinstance(found, Proof)
    (tmp_path / "proof.json").write_text(render(replace(found, how="inductor"), "json"), encoding="utf-8")
    *_, times = tables(*read([str(tmp_path / "proof.json")]), alone=True)
    lines = [line.cells[0].text for group in times.groups for line in group.lines]
    assert lines == ["without", "with the pass", "MLPs that do nothing"]


def test_a_study_has_its_winners_and_means(tmp_path: Path) -> None:
    study = Study(
        schema=1,
        kind="study",
        mlpfusion="0.1.0",
        created="2026-01-01",
        name="small",
        definition="d",
        settings=Settings(backends=("eager", "fused"), rounds=60),
        models=(),
        cells=tuple(_kept(tokens) for tokens in (1, 16)),
    )
    results.save(study, tmp_path / "study.json")
    winners, means = tables(*read([str(tmp_path)]), alone=True)
    assert [cell.text for cell in winners.lines[0].cells] == [
        "gemma",
        "inference",
        "bfloat16",
        "H200",
        "fused",
        "fused",
    ]
    assert means.lines[0].cells[0].text == "fused"


def _kept(tokens: int) -> Kept:
    work = Work(of=(Use(model="gemma"),), workload=Workload(spec=SPEC, batch=1, seq=tokens))
    speeds = {"eager": OverEager(median=1.0), "fused": OverEager(median=0.5, low=0.4, high=0.6)}
    outcome = Outcome(clock="event_us", winner="fused", speeds=speeds)
    return Kept(cell=Cell(work=work, gpu="H200"), digest=str(tokens), state="finished", outcome=outcome)


def test_a_plan_is_shown_only_alone() -> None:
    assert tables(*read([str(RESULTS / "h200-choose-article" / "plan.json")]), alone=False) == []
