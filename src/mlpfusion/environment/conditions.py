"""The conditions under which a choice holds: the card and the versions, compared one by one."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.environment import provenance
from mlpfusion.records.choice import Conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.device import Device

KERNELS: Final = "mlpfusion_kernels"


def conditions(device: Device, backends: Sequence[str], also: Iterable[str] = ()) -> Conditions:
    """This card and the versions here of all that these backends run, and of the distributions that `also` names."""
    import torch

    versions: dict[str, str | None] = {
        **{name: provenance.version(name) for name in also},
        "torch": str(torch.__version__),
        "triton": provenance.version("triton"),
        provenance.OURS: provenance.version(provenance.OURS),
        KERNELS: _kernels(),
        **provenance.behind(backends),
    }
    return Conditions(device=device.name, capability=device.capability, versions=dict(sorted(versions.items())))


def differences(then: Conditions, now: Conditions) -> list[str]:
    """What of `then` is not so `now`, each as one phrase; what `then` does not name does not count."""
    found = []
    if (then.device, then.capability) != (now.device, now.capability):
        found.append(f"{_card(then)} there, {_card(now)} here")
    for name, version in then.versions.items():
        here = now.versions.get(name)
        if version != here:
            found.append(f"{name} {version or 'not installed'} there, {here or 'not installed'} here")
    return found


def _card(known: Conditions) -> str:
    if known.capability is None:
        return known.device
    return f"{known.device} (sm_{known.capability[0]}{known.capability[1]})"


def _kernels() -> str | None:
    """A digest of the kernels' sources, which change more often than a version does."""
    found = util.find_spec(KERNELS)
    if found is None or found.origin is None:
        return None
    return provenance.digest(sorted(Path(found.origin).parent.rglob("*.py")))
