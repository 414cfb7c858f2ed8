"""How long the rest of several profiles takes."""

from __future__ import annotations

import pytest
import torch
from support.choices_made import SPEC

from mlpfusion.spec import Workload
from mlpfusion.stages.choose.eta import TimeLeft
from mlpfusion.stages.profile import run

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


def test_how_long_the_rest_takes():
    work = Workload(spec=SPEC, batch=1, seq=8)
    told, time = [], iter([0.0, 30.0, 60.0])
    heard = TimeLeft({work: frozenset({"a", "b", "c"})}, told.append, lambda: next(time)).watch(work)
    for name, text in (("old", "ok"), ("a", "…"), ("a", "ok"), ("b", "failed: x")):
        heard(run.Progress("qualify", name, text))
    assert [each.text for each in told] == [
        "ok [inference, 8 tokens; 0 of 4 steps]",
        "… [inference, 8 tokens; 0 of 4 steps]",
        "ok [inference, 8 tokens; 1 of 4 steps, about 2 min left]",
        "failed: x [inference, 8 tokens; 2 of 4 steps, about 1 min left]",
    ]
