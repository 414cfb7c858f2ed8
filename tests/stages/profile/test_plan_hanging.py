"""A third party's backend that hangs while it is loaded or asked: its row says so, after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlpfusion.device import detect
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.profile import plan

if TYPE_CHECKING:
    from pathlib import Path

SPEC = MLPSpec(hidden_size=16, intermediate_size=32)
HANGS = """import threading
{loads}

class Mine:
    name = "mine"

    def unsupported(self, spec, device):
        {asked}

    def bind(self, mlp):
        return mlp
"""


@pytest.mark.parametrize(
    ("loads", "asked", "status"),
    [
        ("threading.Event().wait(60)", "return None", "unavailable"),
        ("", "threading.Event().wait(60)", "unavailable"),
        ("", "return None", "available"),
    ],
)
def test_one_that_hangs_is_left_behind(tmp_path: Path, loads: str, asked: str, status: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HANGS.format(loads=loads, asked=asked))
    seconds = 60.0 if status == "available" else 0.2
    found = plan.planned_in_time(f"{file}:Mine", SPEC, detect("cpu"), seconds)
    assert found.status == status
    assert found.reason == (None if status == "available" else "it gave no answer within 0.2 s: it hangs")
