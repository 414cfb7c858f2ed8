"""What is shown of a study before it runs."""

from __future__ import annotations

import json

import pytest
from support.choices_made import HERE
from support.studies_made import read

from mlpfusion.errors import UsageError
from mlpfusion.report.sweep import plan as report
from mlpfusion.stages.sweep import plan


def test_a_plan_in_every_format(tmp_path):
    asked = read(tmp_path)
    found = plan.plan(asked, [HERE])
    states = [plan.MEASURED, "refused: it | is too large"]
    time = plan.estimate([found[0].cell] * 60, asked.settings)

    def shown(fmt, workers=2):
        return report.render(found, states, time, workers, fmt)

    assert "2 cells: 1 to measure, 1 refused; about 2 min on 2 workers, assuming" in shown("text")
    assert "about 4 min on 1 worker," in shown("text", 1)
    assert "it \\| is too large" in shown("github")
    assert shown("csv").splitlines()[2] == "tiny,64,32,4,float32,inference,cpu,refused: it | is too large"
    assert json.loads(shown("json"))["estimate_s"] == 120.0
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        shown("pdf")
