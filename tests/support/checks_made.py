"""Results of checks as a validation finds them."""

from __future__ import annotations

from mlpfusion.records.validation import Checked


def checked(name: str, status: str, *, hazard: bool = False) -> Checked:
    return Checked(name=name, looked_at="", status=status, sentence=f"of {name}", repro="", hazard=hazard)  # type: ignore[arg-type]
