"""Background load is told where it disturbs times of the host."""

from __future__ import annotations

from mlpfusion.report.host_load import DISTURBING, disturbed


def test_only_what_disturbs_is_told():
    assert disturbed(None) is None
    assert disturbed(DISTURBING / 2) is None
    assert "background load was 37% of the CPU" in (disturbed(0.37) or "")
