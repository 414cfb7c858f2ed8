"""A result file whose numbers cannot be: it is refused when it is read, with the place, not later with a traceback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import RESULTS

from mlpfusion.cli.main import main
from mlpfusion.errors import UsageError
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RESULT = RESULTS / "h200-traffic.json"


def recorded() -> dict[str, Any]:
    """The first recorded profile with round-trips, as its file has it."""
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))["profiles"]["article"]
    return found


def written(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    profile = recorded()
    change(profile["rows"][0]["traffic"])
    path.write_text(json.dumps(profile), encoding="utf-8")
    return path


def step(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda traffic: traffic["steps"][1].__setitem__(field, value)


def test_the_recorded_one_is_read(tmp_path: Path) -> None:
    assert results.load(written(tmp_path / "result.json", lambda traffic: None)).rows


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            step("values_read", [99]),
            "99 where its row has 4 intermediates - at `$.rows[0].traffic.steps[1].values_read`",
        ),
        (step("values_written", [4]), "4 where its row has 4 intermediates"),
        (step("kernels", [99]), "99 where its row has 7 kernels - at `$.rows[0].traffic.steps[1].kernels`"),
        (step("kernels", [-1]), "Expected `int` >= 0 - at `$.rows[0].traffic.steps[1].kernels[0]`"),
        (step("read_bytes", -1), "Expected `int` >= 0 - at `$.rows[0].traffic.steps[1].read_bytes`"),
        (step("flops", -1), "Expected `int` >= 0"),
        (
            lambda traffic: traffic.update(derived_bytes=-5),
            "Expected `int` >= 0 - at `$.rows[0].traffic.derived_bytes`",
        ),
        (lambda traffic: traffic.update(round_trips=-5), "Expected `int` >= 0"),
        (lambda traffic: traffic["intermediates"][0].update(bytes=-5), "Expected `int` >= 0"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], None], says: str
) -> None:
    path = written(tmp_path / "result.json", change)
    with pytest.raises(UsageError) as raised:
        results.load(path)
    assert "is a damaged profile: " in str(raised.value)
    assert says in str(raised.value)
    assert main(["table", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
