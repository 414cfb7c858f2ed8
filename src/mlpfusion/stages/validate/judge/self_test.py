"""Judges the controls that ship with the package: kernels with a known verdict."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.validation import Control, Judged
from mlpfusion.spec import DTYPES
from mlpfusion.spec import TABLE as ACTIVATIONS
from mlpfusion.stages.validate.judge.exam import Asked
from mlpfusion.stages.validate.judge.examine import Order, examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.validation import Verdict
    from mlpfusion.spec import ActivationRow
    from mlpfusion.stages.validate.judge.examine import Bench, Tell

TABLE: Final = "controls.json"


def folder() -> Path:
    """Where the controls are: files of kernels, and the table of them."""
    return Path(__file__).resolve().parents[1] / "controls"


def controls() -> tuple[Control, ...]:
    """All of them: those of the table, good ones first, then those of each activation."""
    listed = msgspec.json.decode((folder() / TABLE).read_bytes(), type=tuple[Control, ...])
    return *listed, *(control for row in ACTIVATIONS for control in _of(row))


def _of(row: ActivationRow) -> Iterator[Control]:
    file = "activations.py"
    yield Control(
        name=f"right {row.name}",
        target=f"{file}:right",
        activation=row.name,
        why=f"{row.label}, by PyTorch's operators and requested as such",
    )
    for name, check, why in (
        ("another", "function", f"another activation where {row.label} is requested"),
        ("slope_of_another", "backward", f"{row.label} with the derivative of another activation"),
    ):
        yield Control(
            name=f"{name} {row.name}",
            target=f"{file}:{name}",
            activation=row.name,
            why=why,
            rejected_by=check,
            seen_in=DTYPES,
        )


def judge(bench: Bench, control: Control, *, seed: int, tell: Tell) -> Judged:
    """A control's verdict, and whether it is the known one."""
    reason = _unfit(control, bench.device)
    if reason is not None:
        return Judged(control=control, skipped=reason)
    path, separator, name = control.target.rpartition(":")
    text = f"{folder() / path}:{name}" if separator and path.endswith(".py") else control.target
    asked = Asked(time_limit_s=control.time_limit_s, dtypes=control.dtypes, only=control.only, until_failure=True)
    verdict = examine(
        bench, Order(text, control.activation), asked, seed=seed, sources=lambda target, code: None, tell=tell
    )
    # A path is of this machine; the file's name says which control it is.
    shown = msgspec.structs.replace(verdict, target=control.target, checks=tuple(_short(verdict, folder())))
    return Judged(control=control, verdict=shown, wrong=_wrong(control, verdict))


def _short(verdict: Verdict, place: Path) -> list:  # type: ignore[type-arg]
    return [msgspec.structs.replace(each, repro=each.repro.replace(f"{place}/", "")) for each in verdict.checks]


def _unfit(control: Control, device: DeviceKind) -> str | None:
    if control.device is not None and control.device != device:
        return f"needs a {'GPU' if control.device == 'cuda' else 'CPU'}"
    if control.needs is not None and util.find_spec(control.needs) is None:
        return f"needs {control.needs}"
    return None


def _wrong(control: Control, verdict: Verdict) -> str | None:
    """In what a verdict is not the known one, or None.

    A control whose fault is a hazard is rejected where hazards are, that is by --strict.
    """
    if control.rejected_by is None:
        unknown = [f"{check.name}: {check.sentence}" for check in verdict.hazards if check.name not in control.hazards]
        if not verdict.is_accepted(strict=False):
            return f"is {verdict.word} where it should be accepted: {verdict.headline}"
        return f"has a hazard that is not known of it: {'; '.join(unknown)}" if unknown else None
    if verdict.is_accepted(strict=True):
        return f"is accepted where {control.rejected_by} should reject it"
    if verdict.word == "not decidable here":
        return f"is not decidable: {verdict.headline}"
    first = (verdict.failed or verdict.hazards)[0]
    if first.name != control.rejected_by:
        return f"is rejected by {first.name} where {control.rejected_by} should do it: {first.sentence}"
    return None
