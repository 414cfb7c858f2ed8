"""diff of two runs: what the intervals do not hold, and in what the environments differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.paths import RESULTS

from mlpfusion.report import diff
from mlpfusion.stages.trace import run
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

RESULT = RESULTS / "h200-article.json"
PROFILE = results.load(RESULT)


def other(tmp_path: Path, *, device: dict[str, Any] | None = None, **environment: Any) -> str:
    changed = msgspec.structs.replace(
        PROFILE,
        device=msgspec.structs.replace(PROFILE.device, **(device or {})),
        environment=msgspec.structs.replace(PROFILE.environment, **environment),
    )
    path = tmp_path / "other.json"
    results.save(changed, path)
    return f"{path}:eager"


def test_two_runs_say_what_their_intervals_lack(tmp_path: Path) -> None:
    for b in (f"{RESULT}:triton", other(tmp_path)):
        found = run.diff(f"{RESULT}:eager", b)
        assert [reason for reason in found.reasons if "not between runs" in reason]
        assert not [reason for reason in found.reasons if "different environments" in reason]
        assert "not between runs" in diff.render(found, "text").replace("\n", " ")
    same = run.diff(f"{RESULT}:eager", f"{RESULT}:eager")
    assert not [reason for reason in same.reasons if "run to run" in reason]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"torch": "9.9.9"}, f"torch {PROFILE.environment.torch} and 9.9.9"),
        ({"driver": "1.2"}, f"driver {PROFILE.environment.driver} and 1.2"),
        ({"sm_clock_mhz": 999}, f"SM clock MHz {PROFILE.environment.sm_clock_mhz} and 999"),
        ({"device": {"name": "NVIDIA H100 PCIe"}}, "GPU NVIDIA H200 and NVIDIA H100 PCIe"),
    ],
)
def test_environments_that_differ_are_named(tmp_path: Path, changes: dict[str, Any], wanted: str) -> None:
    found = run.diff(f"{RESULT}:eager", other(tmp_path, **changes))
    assert found.reasons[-1] == f"they were measured in different environments: {wanted}"


def test_what_one_side_does_not_record_is_no_difference(tmp_path: Path) -> None:
    found = run.diff(f"{RESULT}:eager", other(tmp_path, driver=None))
    assert not [reason for reason in found.reasons if "different environments" in reason]
