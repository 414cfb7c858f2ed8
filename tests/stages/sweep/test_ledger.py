"""What is kept of the cells of a study: states, attempts, nodes without a name of their own."""

from __future__ import annotations

from msgspec.structs import replace
from support.choices_made import HERE
from support.studies_made import SMALL, read, result

from mlpfusion.environment import conditions
from mlpfusion.records.sweep.study import Attempt
from mlpfusion.stages.sweep import folder, plan
from mlpfusion.stages.sweep.ledger import Ledger
from mlpfusion.storage import results

HOLDS = conditions.conditions(HERE, ["eager"])


def ledger(tmp_path, text=SMALL, **options):
    asked = read(tmp_path, text)
    (tmp_path / "out" / "cells").mkdir(parents=True, exist_ok=True)
    return Ledger(asked, plan.plan(asked, [HERE]), HOLDS, out=tmp_path / "out", **options)


def attempt(node="node 1", **changes):
    return Attempt(node=node, started="2026-01-01T00:00:00+00:00", seconds=2.0, **changes)


def test_cells_wait_and_are_finished_failed_or_lost(tmp_path):
    found = ledger(tmp_path)
    long, short = found.waiting()
    assert [each.cell.work.workload.tokens for each in (long, short)] == [4, 1]
    found.lose(long.digest, attempt(reason="its node was lost"))
    assert len(found.waiting()) == 2
    found.finish(long.digest, result(4), attempt())
    found.fail(short.digest, attempt(reason="killed"))
    assert found.waiting() == []
    found.save()
    kept = {each.digest: each for each in results.load_study(tmp_path / "out" / folder.STUDY_NAME).cells}
    assert (kept[long.digest].state, [each.reason for each in kept[long.digest].attempts]) == (
        "finished",
        ["its node was lost", None],
    )
    assert (kept[short.digest].state, kept[short.digest].reason) == ("failed", "killed")
    again = ledger(tmp_path)
    assert [each.digest for each in again.waiting()] == [short.digest]
    assert len(again.waiting()[0].attempts) == 1


def test_nodes_are_numbered_by_their_conditions(tmp_path):
    found = ledger(tmp_path)
    other = replace(HOLDS, versions={**HOLDS.versions, "torch": "1.0"})
    assert [found.named(each) for each in (HOLDS, other, HOLDS, other)] == ["node 1", "node 2", "node 1", "node 2"]
    assert list(found.record.nodes) == ["node 1"]  # of a node that measured nothing there is nothing to say


def test_refused_cells_are_kept_with_their_reason(tmp_path):
    asked = read(tmp_path)
    planned = [each._replace(refused="too large") for each in plan.plan(asked, [HERE])]
    (tmp_path / "out" / "cells").mkdir(parents=True)
    found = Ledger(asked, planned, HOLDS, out=tmp_path / "out")
    assert {(each.state, each.reason) for each in found.cells} == {("refused", "too large")}
    assert found.waiting() == []


def test_the_study_file_is_not_written_more_often_than_it_is_worth(tmp_path, monkeypatch):
    found, written = ledger(tmp_path, SMALL.replace("[1, 4]", str(list(range(1, 30))))), []
    monkeypatch.setattr(results, "save", lambda record, path: written.append(path.name))
    found._saving_s, found._saved_at = 3600.0, float("inf")
    for each in found.waiting():
        found.fail(each.digest, attempt(reason="killed"))
    assert written == []
    found.save()
    assert written == [folder.STUDY_NAME]
