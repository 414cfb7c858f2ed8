"""Tables of files that have no rows of backends, and of what a choice has beside them."""

from __future__ import annotations

import pytest
from support.paths import RESULTS

from mlpfusion.report.table.others import tables
from mlpfusion.stages.tabulate.sources import read


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("h200-choose-article/choice.json", ["Ranges"]),
        ("h200-choose-article/plan.json", ["Plan of a choice"]),
        ("h200-prove-gemma-2b-fused.json", ["Errors against fp64", "Time of the whole model"]),
        ("h200-validate.json", ["validation-set"]),
        ("h200-groups.json", ["groups"]),
        ("h200-profile.json", []),
    ],
)
def test_each_kind_has_its_tables(name: str, titles: list[str]) -> None:
    found = tables(*read([str(RESULTS / name)]), alone=True)
    assert list(dict.fromkeys(table.title.split(":")[0] for table in found)) == titles
    for table in found:
        assert all(len(line.cells) == len(table.columns) for line in table.lines)


def test_a_plan_is_shown_only_alone() -> None:
    assert tables(*read([str(RESULTS / "h200-choose-article" / "plan.json")]), alone=False) == []
