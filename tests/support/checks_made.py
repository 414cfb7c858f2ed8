"""Results of checks as a validation finds them, and self-tests of what controls were judged."""

from __future__ import annotations

from mlpfusion.records.validation import Checked, Judged, SelfTest, Validation, Verdict
from support.profiles_made import profile


def checked(name: str, status: str, *, hazard: bool = False) -> Checked:
    return Checked(name=name, looked_at="", status=status, sentence=f"of {name}", repro="", hazard=hazard)  # type: ignore[arg-type]


def self_test(*judged: Judged, seed: int = 7, seconds: float = 61.4) -> SelfTest:
    where = profile()
    return SelfTest(
        schema=1,
        kind="self-test",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        seed=seed,
        seconds=seconds,
        device=where.device,
        environment=where.environment,
        judged=judged,
    )


def validation(*verdicts: Verdict, bounds: dict[str, float] | None = None) -> Validation:
    where = profile()
    return Validation(
        schema=1,
        kind="validation",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        seed=7,
        device=where.device,
        environment=where.environment,
        verdicts=verdicts,
        bounds=bounds or {},
    )
